"""Each rule of Kubernetes' Pod Security Standards, baseline and restricted, holds for the pods that we make.

The rules are those of kubernetes.io/docs/concepts/security/pod-security-standards; each is shown to fail too.
"""

import copy
from dataclasses import replace

import pytest

from rackgate.engines.launchers.pods.manifests import PodPlan, deployment_of

PLAN = PodPlan(
    name="rackgate-e-1",
    namespace="rack",
    labels={"rackgate.io/launch": "1"},
    annotations={"rackgate.io/engine": "e"},
    image="registry.example/vllm:1",
    pull="missing",
    port=8000,
    health_path="/health",
)
PLANS = {
    "plain": PLAN,
    "all": replace(
        PLAN,
        arguments=("--model", "/models/m"),
        entrypoint=("serve",),
        environment={"A": "1"},
        secrets={"HF_TOKEN": "x"},
        gpus=2,
        node_name="node-a",
        node_selector={"rack": "r1"},
        tolerations=({"key": "under-test", "operator": "Exists"},),
        pull_secret="registry",
        runtime_class="nvidia",
        memory="64Gi",
        cpu="8",
        claims={"models": "/models"},
        user=65534,
    ),
}
CAPABILITIES = {
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
}
SYSCTLS = {
    *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start"),
    *("net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports"),
    *("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
    "net.ipv4.tcp_keepalive_probes",
}
VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"),
    "secret",
}
SELINUX = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


def containers(template):
    pod = template["spec"]
    return [*pod["containers"], *pod.get("initContainers", ()), *pod.get("ephemeralContainers", ())]


def context(holder):
    return holder.get("securityContext") or {}


def contexts(template):
    return [context(template["spec"]), *map(context, containers(template))]


def each_container(template, holds):
    return all(holds(context(container)) for container in containers(template))


def added(template):
    return {name for one in contexts(template) for name in one.get("capabilities", {}).get("add", ())}


def handlers(template):
    """Yield what probes and hooks of the containers ask."""
    for container in containers(template):
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            yield container.get(probe, {})
        yield from container.get("lifecycle", {}).values()


def hosts(template):
    found = [handler.get(kind, {}) for handler in handlers(template) for kind in ("httpGet", "tcpSocket")]
    return {asked.get("host", "") for asked in found}


def kinds(template):
    return {key for volume in template["spec"].get("volumes", ()) for key in volume if key != "name"}


def seccomp(template):
    pod = context(template["spec"]).get("seccompProfile", {}).get("type")
    return [context(one).get("seccompProfile", {}).get("type", pod) for one in containers(template)]


def selinux(template):
    return [one.get("seLinuxOptions", {}) for one in contexts(template)]


BASELINE = {
    "host process": lambda t: not any(c.get("windowsOptions", {}).get("hostProcess") for c in contexts(t)),
    "host namespaces": lambda t: not any(t["spec"].get(f"host{kind}") for kind in ("Network", "PID", "IPC")),
    "privileged": lambda t: each_container(t, lambda c: not c.get("privileged")),
    "capabilities": lambda t: added(t) <= CAPABILITIES,
    "host path": lambda t: "hostPath" not in kinds(t),
    "host ports": lambda t: not any(p.get("hostPort") for c in containers(t) for p in c.get("ports", ())),
    "hosts of probes": lambda t: hosts(t) <= {""},
    "AppArmor": lambda t: (
        all(
            c.get("appArmorProfile", {}).get("type") in (None, "RuntimeDefault", "Localhost")
            for c in contexts(t)
        )
        and all(
            value == "runtime/default" or value.startswith("localhost/")
            for name, value in t["metadata"].get("annotations", {}).items()
            if name.startswith(APPARMOR)
        )
    ),
    "SELinux": lambda t: all(
        one.get("type", "") in SELINUX and not one.get("user") and not one.get("role") for one in selinux(t)
    ),
    "proc mount": lambda t: each_container(t, lambda c: c.get("procMount", "Default") == "Default"),
    "seccomp": lambda t: "Unconfined" not in seccomp(t),
    "sysctls": lambda t: {one["name"] for one in context(t["spec"]).get("sysctls", ())} <= SYSCTLS,
}
RESTRICTED = {
    "volume types": lambda t: kinds(t) <= VOLUMES,
    "privilege escalation": lambda t: each_container(t, lambda c: c.get("allowPrivilegeEscalation") is False),
    "not as root": lambda t: each_container(
        t, lambda c: c.get("runAsNonRoot", context(t["spec"]).get("runAsNonRoot")) is True
    ),
    "not as user 0": lambda t: all(one.get("runAsUser") != 0 for one in contexts(t)),
    "seccomp is set": lambda t: set(seccomp(t)) <= {"RuntimeDefault", "Localhost"},
    "capabilities are dropped": lambda t: (
        added(t) <= {"NET_BIND_SERVICE"}
        and each_container(t, lambda c: "ALL" in c.get("capabilities", {}).get("drop", ()))
    ),
}
RULES = {**BASELINE, **RESTRICTED}

POD, CONTAINER = ("spec",), ("spec", "containers", 0)
BREAKS = {
    "host process": ((*POD, "securityContext", "windowsOptions"), {"hostProcess": True}),
    "host namespaces": ((*POD, "hostIPC"), True),
    "privileged": ((*CONTAINER, "securityContext", "privileged"), True),
    "capabilities": ((*CONTAINER, "securityContext", "capabilities", "add"), ["IPC_LOCK"]),
    "host path": ((*POD, "volumes", 0), {"name": "shm", "hostPath": {"path": "/srv"}}),
    "host ports": ((*CONTAINER, "ports", 0, "hostPort"), 8000),
    "hosts of probes": ((*CONTAINER, "readinessProbe", "httpGet", "host"), "10.0.0.1"),
    "AppArmor": (("metadata", "annotations", f"{APPARMOR}engine"), "unconfined"),
    "SELinux": ((*POD, "securityContext", "seLinuxOptions"), {"type": "spc_t"}),
    "proc mount": ((*CONTAINER, "securityContext", "procMount"), "Unmasked"),
    "seccomp": ((*CONTAINER, "securityContext", "seccompProfile"), {"type": "Unconfined"}),
    "sysctls": ((*POD, "securityContext", "sysctls"), [{"name": "kernel.msgmax", "value": "1"}]),
    "volume types": ((*POD, "volumes", 1), {"name": "tmp", "nfs": {"server": "h", "path": "/"}}),
    "privilege escalation": ((*CONTAINER, "securityContext", "allowPrivilegeEscalation"), None),
    "not as root": ((*POD, "securityContext", "runAsNonRoot"), None),
    "not as user 0": ((*CONTAINER, "securityContext", "runAsUser"), 0),
    "seccomp is set": ((*POD, "securityContext", "seccompProfile"), {}),
    "capabilities are dropped": ((*CONTAINER, "securityContext", "capabilities"), {"add": ["CHOWN"]}),
}


def template(plan):
    return deployment_of(plan)["spec"]["template"]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("rule", RULES)
def test_the_pod_keeps_each_rule_of_the_restricted_profile(rule, plan):
    assert RULES[rule](template(PLANS[plan]))


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_one_that_a_pod_can_break(rule):
    broken = copy.deepcopy(template(PLAN))
    (*parents, last), value = BREAKS[rule]
    place = broken
    for part in parents:
        place = place[part]
    place[last] = value
    assert not RULES[rule](broken)
