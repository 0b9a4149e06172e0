"""Answers of the simulated engine that have a shape: JSON of a schema, and calls of tools."""

from __future__ import annotations

import json
from typing import Any

_PLAIN: dict[str, Any] = {"string": "hello", "integer": 1, "number": 1.0, "boolean": True, "null": None}


def wanted_schema(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema that an answer must have; None if any text will do."""
    asked = body.get("response_format")
    if not isinstance(asked, dict) or asked.get("type") != "json_schema":
        return None
    schema = (asked.get("json_schema") or {}).get("schema")
    return schema if isinstance(schema, dict) else {}


def wanted_tool(body: dict[str, Any]) -> tuple[str, str] | None:
    """Return (name, arguments in JSON) of the tool that must be called; None if none must."""
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return None
    name = (choice.get("function") or {}).get("name")
    for tool in body.get("tools") or ():
        function = tool.get("function") or {}
        if function.get("name") == name:
            return str(name), json.dumps(instance_of(function.get("parameters") or {}))
    return None


def instance_of(schema: dict[str, Any]) -> Any:
    """Return the simplest value of a JSON schema, as far as engines' users write them."""
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: instance_of(one) for name, one in (schema.get("properties") or {}).items()}
    if kind == "array":
        return [instance_of(schema.get("items") or {"type": "string"})]
    return _PLAIN.get(kind)
