"""A management controller with DMTF's tree shape, over HTTPS, with basic and session logins."""

import base64
import json
import ssl
import subprocess
from contextlib import contextmanager

from local_server import Answer, serving

ROOT = "/redfish/v1"


def collection(*paths):
    return {"Members": [{"@odata.id": path} for path in paths], "Members@odata.count": len(paths)}


def link(path):
    return {"@odata.id": path}


def tree():
    tray = f"{ROOT}/Chassis/Tray_0"
    leaks = f"{tray}/ThermalSubsystem/LeakDetection/LeakDetectors"
    return {
        ROOT: {"RedfishVersion": "1.17.0", "Chassis": link(f"{ROOT}/Chassis")},
        f"{ROOT}/Chassis": collection(tray),
        tray: {
            "Id": "Tray_0",
            "EnvironmentMetrics": link(f"{tray}/EnvironmentMetrics"),
            "ThermalSubsystem": link(f"{tray}/ThermalSubsystem"),
            "PowerSubsystem": link(f"{tray}/PowerSubsystem"),
        },
        f"{tray}/EnvironmentMetrics": {
            "PowerWatts": {"Reading": 6123.5},
            "TemperatureCelsius": {"Reading": 24},
        },
        f"{tray}/ThermalSubsystem": {
            "ThermalMetrics": link(f"{tray}/ThermalSubsystem/ThermalMetrics"),
            "Fans": link(f"{tray}/ThermalSubsystem/Fans"),
            "LeakDetection": link(f"{tray}/ThermalSubsystem/LeakDetection"),
        },
        f"{tray}/ThermalSubsystem/ThermalMetrics": {
            "TemperatureReadingsCelsius": [
                {"DeviceName": "Inlet", "Reading": 23.5},
                {"DeviceName": "Exhaust", "Reading": 41.0},
                {"DeviceName": "Spare", "Reading": None},
            ]
        },
        f"{tray}/ThermalSubsystem/Fans": collection(f"{tray}/ThermalSubsystem/Fans/0"),
        f"{tray}/ThermalSubsystem/Fans/0": {
            "Name": "Fan 0",
            "SpeedPercent": {"Reading": 40, "SpeedRPM": 9800},
            "Status": {"State": "Enabled", "Health": "OK"},
        },
        f"{tray}/ThermalSubsystem/LeakDetection": {"LeakDetectors": link(leaks)},
        leaks: collection(f"{leaks}/0", f"{leaks}/1"),
        f"{leaks}/0": detector("OK"),
        f"{leaks}/1": detector("OK"),
        f"{tray}/PowerSubsystem": {"PowerSupplies": link(f"{tray}/PowerSubsystem/PowerSupplies")},
        f"{tray}/PowerSubsystem/PowerSupplies": collection(
            f"{tray}/PowerSubsystem/PowerSupplies/0", f"{tray}/PowerSubsystem/PowerSupplies/1"
        ),
        f"{tray}/PowerSubsystem/PowerSupplies/0": supply(tray, 0, "OK"),
        f"{tray}/PowerSubsystem/PowerSupplies/0/Metrics": {"InputPowerWatts": {"Reading": "3100"}},
        f"{tray}/PowerSubsystem/PowerSupplies/1": supply(tray, 1, "Critical"),
        f"{tray}/PowerSubsystem/PowerSupplies/1/Metrics": {"InputPowerWatts": {"Reading": 3050}},
        f"{ROOT}/UpdateService/FirmwareInventory": collection(f"{ROOT}/UpdateService/FirmwareInventory/BMC"),
        f"{ROOT}/UpdateService/FirmwareInventory/BMC": {"Id": "BMC", "Version": "24.10-4"},
    }


def detector(state, enabled="Enabled"):
    return {"Name": f"Leak {state}", "DetectorState": state, "Status": {"State": enabled, "Health": "OK"}}


def supply(tray, number, health):
    path = f"{tray}/PowerSubsystem/PowerSupplies/{number}"
    return {
        "Name": f"PSU {number}",
        "Status": {"State": "Enabled", "Health": health},
        "Metrics": link(f"{path}/Metrics"),
    }


class Controller:
    """What it holds, who may read it, and who is logged in."""

    user, password = "reader", "s3cret"

    def __init__(self):
        self.tree = tree()
        self.broken = {}
        self.sessions = {}
        self.logins = 0
        self.logouts = 0

    def answer(self, request):
        if request.path == f"{ROOT}/SessionService/Sessions" and request.method == "POST":
            return self._log_in(json.loads(request.body))
        if not self._allowed(request.headers):
            return Answer(401)
        if request.method == "DELETE":
            self.sessions.pop(request.headers.get("X-Auth-Token"), None)
            self.logouts += 1
            return Answer(204)
        if request.path in self.broken:
            return Answer(self.broken[request.path])
        body = self.tree.get(request.path)
        return Answer(404) if body is None else Answer(200, json.dumps({"@odata.id": request.path, **body}))

    def _log_in(self, body):
        if (body.get("UserName"), body.get("Password")) != (self.user, self.password):
            return Answer(401)
        self.logins += 1
        token = f"token-{self.logins}"
        where = f"{ROOT}/SessionService/Sessions/{self.logins}"
        self.sessions[token] = where
        return Answer(201, "{}", {"X-Auth-Token": token, "Location": where})

    def _allowed(self, headers):
        given = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return (
            headers.get("X-Auth-Token") in self.sessions or headers.get("Authorization") == f"Basic {given}"
        )


def certificate(folder, name="127.0.0.1"):
    """Make a self-signed certificate; returns the paths of certificate and key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    kind = "IP" if name[0].isdigit() else "DNS"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName={kind}:{name}"),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return cert, key


@contextmanager
def running(controller, cert, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with serving(controller.answer, context) as url:
        yield url
