#!/usr/bin/env python3
"""Checks the files in packaging/ with the tools of their kinds. A tool that is missing is named, and its checks are skipped.

  ci/packaging.py                 the unit, the alerts, the Containerfile, the chart, the composition (seconds)
  ci/packaging.py --image FILE    also builds and runs the image around a static program FILE, with buildah

tests/serve/packaging.rs of the program checks what these files say about the program.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
# systemd rates the exposure of a service from 0 to 10. This is the most, in tenths.
MOST_EXPOSURE = 20
# The most bytes of the image without its base, which adds 2 MB.
MOST_BYTES = 23_000_000
bad = []


def complain(what, why):
    bad.append(what)
    print(f"{what}: {why}", file=sys.stderr)


def skip(tool, what):
    print(f"SKIPPED {what}: there is no {tool} here")


def run(what, *command, **settings):
    """Runs a command, and returns its output. A failure is a complaint."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **settings)
    if done.returncode != 0:
        complain(what, done.stdout.strip())
    return done.stdout


def check_unit():
    if not shutil.which("systemd-analyze"):
        return skip("systemd-analyze", "the systemd unit")
    unit = PACKAGING / "systemd/tollgate.service"
    with tempfile.TemporaryDirectory() as folder:
        # Here, neither the program nor its manual pages are installed, and the unit must not need the pages.
        here = Path(folder) / unit.name
        here.write_text(unit.read_text().replace("/usr/bin/tollgate", "/bin/true"))
        run("the lines of the systemd unit", "systemd-analyze", "verify", "--man=yes", here)
    said = run("the systemd unit", "systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={MOST_EXPOSURE}", unit)
    if level := re.search(r"Overall exposure level for \S+ ([0-9.]+)", said):
        print(f"systemd unit: exposure {level[1]}, at most {MOST_EXPOSURE / 10}")


def check_alerts():
    if not shutil.which("promtool"):
        return skip("promtool", "the alerts")
    folder = PACKAGING / "prometheus"
    run("the alerts", "promtool", "check", "rules", "alerts.yaml", cwd=folder)
    run("the tests of the alerts", "promtool", "test", "rules", "alerts_test.yaml", cwd=folder)
    names = set(re.findall(r"- alert: (\w+)", (folder / "alerts.yaml").read_text()))
    tested = set(re.findall(r"alertname: (\w+)", (folder / "alerts_test.yaml").read_text()))
    if names != tested:
        complain("alerts without a test, or tests without an alert", sorted(names ^ tested))
    print(f"alerts: {len(names)}, each with a test")


def check_containerfile():
    text = (PACKAGING / "Containerfile").read_text()
    last = text[text.rindex("\nFROM ") :]
    if re.search(r"^FROM \S+(:latest|[^:\s]*/[^:\s]+)( AS .*)?$", text, re.MULTILINE):
        complain("packaging/Containerfile", "a base has no fixed tag")
    for line in ("USER 65532:65532", "HEALTHCHECK ", "STOPSIGNAL SIGTERM", "LABEL "):
        if f"\n{line}" not in last:
            complain("packaging/Containerfile", f"the last stage has no {line.strip()}")
    if "\nENV " in last:
        complain("packaging/Containerfile", "variables of the image would replace those of Envoy Gateway")
    if not shutil.which("hadolint"):
        return skip("hadolint", "the style of the Containerfile")
    run("packaging/Containerfile", "hadolint", PACKAGING / "Containerfile")
    print("Containerfile: no remarks of hadolint")


def check_composition(yaml):
    services = yaml.safe_load((PACKAGING / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        if not service.get("read_only") or service.get("cap_drop") != ["ALL"]:
            complain("packaging/compose.yaml", f"{name} needs read_only and cap_drop: [ALL]")
        for volume in service.get("volumes", []):
            if not (PACKAGING / volume.split(":")[0]).exists():
                complain("packaging/compose.yaml", f"{volume} does not exist")
    # The command of Envoy replaces this text of the example.
    if "address: 127.0.0.1, port_value: 10000" not in (ROOT / "examples/envoy/envoy.yaml").read_text():
        complain("packaging/compose.yaml", "its `sed` finds nothing in examples/envoy/envoy.yaml")
    print(f"composition: {', '.join(services)}")


# Values that users set, and whether the chart accepts them.
VALUES = [
    ({}, True),
    (
        {
            "replicas": 1,
            "args": ["--retry-after"],
            "env": [{"name": "TOLLGATE_NEAR_LIMIT", "value": "0.9"}],
            "tls": {"secret": "certs", "clientCa": True, "clientNames": ["spiffe://a/b", "gateway"]},
            "redis": {"secret": "redis"},
            "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
            "autoscaler": {"enabled": True},
            "networkPolicy": {"enabled": True, "gateways": [{"namespaceSelector": {}}]},
            "podLabels": {"team": "edge"},
            "podAnnotations": {"a": "b"},
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"operator": "Exists"}],
            "imagePullSecrets": [{"name": "registry"}],
            "priorityClassName": "high",
            "state": {"enabled": True},
        },
        True,
    ),
    ({"replicas": 1, "state": {"enabled": True, "existingClaim": "counts"}}, True),
    ({"state": {"enabled": True, "existingClaim": "counts"}}, False),
    (
        {
            "resp": {"enabled": True, "usersSecret": "users"},
            "state": {"enabled": True},
            "networkPolicy": {"enabled": True, "redisClients": [{"podSelector": {}}]},
        },
        True,
    ),
    ({"resp": {"enabled": True, "quotaMemory": "1MiB"}}, False),
    ({"existingRules": "mine", "metrics": {"enabled": False}, "disruptionBudget": {"enabled": False}}, True),
    ({"tls": {"clientCa": True}}, False),
    ({"tls": {"secret": "certs", "clientNames": ["gateway"]}}, False),
    ({"replica": 3}, False),
    ({"drain": "5s"}, False),
    ({"log": {"level": "loud"}}, False),
    ({"rules": {"limits.txt": ""}}, False),
]


# Values, the MiB of memory that a pod may take with them, and the MiB of its state.
BOUNDS = [
    ({}, 256, 256),
    ({"resp": {"quotas": 1000}, "maxConnections": 1_000_000}, 256, 256),
    ({"resp": {"enabled": True}}, 256 + 256 + 12 + 782 + 256, 256 + 7 * 256),
    ({"resp": {"enabled": True}, "tls": {"secret": "certs"}}, 256 + 256 + 12 + 1563 + 256, 256 + 7 * 256),
    ({"resp": {"enabled": True, "quotas": 50, "quotaMemory": 4}, "maxConnections": 100}, 256 + 200 + 48 + 8 + 256, 256 + 7 * 200),
    ({"resp": {"enabled": True}, "resources": {"limits": {"memory": "99Mi"}}}, 99, 256 + 7 * 256),
    ({"resources": {"limits": {"cpu": 1}}}, 256, 256),
]


def check_bounds(render):
    """Checks the sizes that the chart computes, and that the program gets the values that they are computed from."""
    for values, memory, state in BOUNDS:
        pod = next(one for one in render(values | {"state": {"enabled": True}}) if one["kind"] == "Deployment")["spec"]["template"]["spec"]
        container = pod["containers"][0]
        variables = {entry["name"]: entry.get("value") for entry in container["env"]}
        folder = next(volume for volume in pod["volumes"] if volume["name"] == "state")["emptyDir"]["sizeLimit"]
        resp = {"quotas": 256, "quotaMemory": 1} | values.get("resp", {})
        told = [str(values.get("maxConnections", 10_000))]
        told += [":6379", str(resp["quotas"]), f"{resp['quotaMemory']}MiB"] if resp.get("enabled") else [None] * 3
        names = ["MAX_CONNECTIONS", "RESP", "RESP_QUOTAS", "RESP_QUOTA_MEMORY"]
        for got, expected in [
            (container["resources"]["limits"]["memory"], f"{memory}Mi"),
            (folder, f"{state}Mi"),
            ([variables.get(f"TOLLGATE_{name}") for name in names], told),
        ]:
            if got != expected:
                complain("chart", f"{json.dumps(values)}: {got} instead of {expected}")


def check_manifests(values, manifests):
    """Returns what is wrong with the rendered manifests."""
    by_kind = {}
    for manifest in manifests:
        by_kind.setdefault(manifest["kind"], manifest)
    pod = by_kind["Deployment"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    times = [int(variables[name].rstrip("s")) for name in ("TOLLGATE_DRAIN", "TOLLGATE_DRAIN_DEADLINE")]
    ports = {port["name"]: port for port in by_kind["Service"]["spec"]["ports"]}
    selector = by_kind["Deployment"]["spec"]["selector"]["matchLabels"]
    security = container["securityContext"]
    one_pod = values.get("replicas") == 1 and "autoscaler" not in values
    yield "TOLLGATE_HTTP" not in variables or "TOLLGATE_TLS_CERT" not in variables, "/json is open beside TLS"
    yield not (one_pod and "PodDisruptionBudget" in by_kind), "the node of the only pod cannot be drained"
    yield grace > sum(times), "the grace period does not exceed the drain"
    yield ports["grpc"]["port"] == 8081, "the service has no port grpc"
    yield {port["targetPort"] for port in ports.values()} <= {port["name"] for port in container["ports"]}, "the pod has not the ports of the service"
    if policy := by_kind.get("NetworkPolicy"):
        open_ports = {rule["ports"][0]["port"] for rule in policy["spec"]["ingress"]}
        yield open_ports == set(ports), "the network policy lets in to other ports"
    yield by_kind["Service"]["spec"]["selector"] == selector, "the service selects other pods"
    yield selector.items() <= pod["metadata"]["labels"].items(), "the deployment selects other pods"
    yield pod["spec"]["securityContext"]["runAsNonRoot"], "the pod may run as root"
    yield security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"], "the container may write or rise"
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    yield mounts == {volume["name"] for volume in pod["spec"]["volumes"]}, "a volume is not mounted, or missing"
    yield all("subPath" not in mount for mount in container["volumeMounts"]), "Kubernetes does not update a subPath"
    yield len(variables) == len(container["env"]), "a variable is set twice"
    yield ("ConfigMap" in by_kind) == ("existingRules" not in values), "the rules have two places, or none"


def check_chart(yaml):
    try:
        from helm_python import chart as helm
        from helm_python.errors import HelmError
    except ImportError:
        return skip("helm_python (pip install helm-python-sdk)", "the chart")
    folder = str(PACKAGING / "helm/tollgate")
    # Severity 1 is information: a chart may have an icon.
    for message in helm.lint(folder, strict=True)["messages"]:
        if message["severity"] > 1:
            complain(f"chart, {message['path']}", message["error"])
    with helm.Chart.load(folder) as chart:

        def render(values):
            texts = [text for name, text in chart.render(values=values, name="demo").items() if name.endswith(".yaml")]
            return [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]

        check_bounds(render)
        for values, is_valid in VALUES:
            try:
                chart.validate_schema(values)
                manifests = render(values)
            except HelmError as error:
                if is_valid:
                    complain("chart", f"{json.dumps(values)}: {error}")
                continue
            if not is_valid:
                complain("chart", f"it accepts {json.dumps(values)}")
                continue
            for holds, why in check_manifests(values, manifests):
                if not holds:
                    complain("chart", f"{json.dumps(values)}: {why}")
    print(f"chart: {len(VALUES)} sets of values")


def check_image(program):
    """Builds the last stage around a program, from `scratch`, and runs its health check and its own check."""
    if not shutil.which("buildah"):
        return skip("buildah", "the image")
    text = (PACKAGING / "Containerfile").read_text()
    last = text[text.rindex("\nFROM ") :].lstrip()
    last = re.sub(r"^FROM .*", "FROM scratch", last)
    last = re.sub(r"COPY --from=build \S+", "COPY tollgate", last)
    with tempfile.TemporaryDirectory() as place:
        context = Path(place) / "context"
        (context / "rules").mkdir(parents=True)
        shutil.copy(program, context / "tollgate")
        shutil.copy(ROOT / "examples/envoy/limits.yaml", context / "rules")
        (context / "Containerfile").write_text(last + "COPY rules /etc/tollgate/rules\n")
        buildah = ["buildah", "--root", f"{place}/root", "--runroot", f"{place}/run", "--storage-driver", "vfs"]
        run("the image", *buildah, "bud", "--quiet", "--isolation", "chroot", "--format", "docker", "-t", "tollgate:test", context)
        shown = json.loads(run("the image", *buildah, "inspect", "--type", "image", "tollgate:test"))
        config = shown["Docker"]["config"]
        if config["User"] != "65532:65532" or "--healthcheck" not in config["Healthcheck"]["Test"]:
            complain("the image", f"user {config['User']}, health check {config.get('Healthcheck')}")
        size = Path(program).stat().st_size
        if size > MOST_BYTES:
            complain("the image", f"{size} bytes are more than {MOST_BYTES}")
        name = run("the container", *buildah, "from", "tollgate:test").strip()
        inside = [*buildah, "run", "--isolation", "chroot", name, "--", "/usr/bin/tollgate", "serve"]
        said = run("the container", *inside, *config["Cmd"][1:], "--check")
        if "can be used" not in said:
            complain("the container", said)
        print(f"image: {size / 1e6:.1f} MB and its base, runs as 65532")


def main():
    try:
        import yaml
    except ImportError:
        yaml = None
    check_unit()
    check_alerts()
    check_containerfile()
    if yaml:
        check_composition(yaml)
        check_chart(yaml)
    else:
        skip("PyYAML", "the composition and the chart")
    if sys.argv[1:2] == ["--image"]:
        check_image(sys.argv[2])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
