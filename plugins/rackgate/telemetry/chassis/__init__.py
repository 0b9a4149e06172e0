"""Chassis signals over Redfish."""
