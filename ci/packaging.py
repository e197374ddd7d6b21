#!/usr/bin/env python3
"""Checks the files in packaging/ with the tools of their kinds. A tool that is missing is named, and its checks are skipped.

  ci/packaging.py                 the unit, the alerts, the Containerfile, the chart, the composition (seconds)
  ci/packaging.py --image FILE    also builds and runs the image around a static program FILE, with buildah

crates/resp/tests/serve/packaging.rs checks what these files say about the program.
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
CONTAINERFILE = (PACKAGING / "Containerfile").read_text()
LAST_STAGE = CONTAINERFILE[CONTAINERFILE.rindex("\nFROM ") :]
# systemd rates the exposure of a service from 0 to 10. This is the most, in tenths.
MOST_EXPOSURE = 20
# The most bytes of the image without its base, which adds 2 MB.
MOST_BYTES = 23_000_000
bad = []


def complain(what, why):
    bad.append(what)
    print(f"{what}: {why}", file=sys.stderr)


def lacks(tool, what):
    """Says that checks are skipped if a tool is missing."""
    if not shutil.which(tool):
        print(f"SKIPPED {what}: there is no {tool} here")
    return not shutil.which(tool)


def run(what, *command, **settings):
    """Runs a command, and returns its output. A failure is a complaint."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **settings)
    if done.returncode != 0:
        complain(what, done.stdout.strip())
    return done.stdout


def check_unit():
    if lacks("systemd-analyze", "the systemd unit"):
        return
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
    if lacks("promtool", "the alerts"):
        return
    folder = PACKAGING / "prometheus"
    run("the alerts", "promtool", "check", "rules", "alerts.yaml", cwd=folder)
    run("the tests of the alerts", "promtool", "test", "rules", "alerts_test.yaml", cwd=folder)
    names = set(re.findall(r"- alert: (\w+)", (folder / "alerts.yaml").read_text()))
    tested = set(re.findall(r"alertname: (\w+)", (folder / "alerts_test.yaml").read_text()))
    if names != tested:
        complain("alerts without a test, or tests without an alert", sorted(names ^ tested))
    print(f"alerts: {len(names)}, each with a test")


def check_containerfile():
    what = "packaging/Containerfile"
    if re.search(r"^FROM \S+(:latest|[^:\s]*/[^:\s]+)( AS .*)?$", CONTAINERFILE, re.MULTILINE):
        complain(what, "a base has no fixed tag")
    for line in ("USER 65532:65532", "HEALTHCHECK ", "STOPSIGNAL SIGTERM", "LABEL "):
        if f"\n{line}" not in LAST_STAGE:
            complain(what, f"the last stage has no {line.strip()}")
    if "\nENV " in LAST_STAGE:
        complain(what, "variables of the image would replace those of Envoy Gateway")
    if not lacks("hadolint", "the style of the Containerfile"):
        run(what, "hadolint", PACKAGING / "Containerfile")
        print("Containerfile: no remarks of hadolint")


def check_composition(yaml):
    what, services = "packaging/compose.yaml", yaml.safe_load((PACKAGING / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        if not service.get("read_only") or service.get("cap_drop") != ["ALL"]:
            complain(what, f"{name} needs read_only and cap_drop: [ALL]")
        for volume in service.get("volumes", []):
            if not (PACKAGING / volume.split(":")[0]).exists():
                complain(what, f"{volume} does not exist")
    # The command of Envoy replaces this text of the example.
    if "address: 127.0.0.1, port_value: 10000" not in (ROOT / "examples/envoy/envoy.yaml").read_text():
        complain(what, "its `sed` finds nothing in examples/envoy/envoy.yaml")
    print(f"composition: {', '.join(services)}")


def faults(row, manifests):
    """Returns whether each property of the rendered manifests holds, and what is wrong if it does not."""
    values, by_kind = row["values"], {manifest["kind"]: manifest for manifest in reversed(manifests)}
    pod = by_kind["Deployment"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    times = [int(variables[name].rstrip("s")) for name in ("TOLLGATE_DRAIN", "TOLLGATE_DRAIN_DEADLINE")]
    ports = {port["name"]: port for port in by_kind["Service"]["spec"]["ports"]}
    targets, pod_ports = {port["targetPort"] for port in ports.values()}, {port["name"] for port in container["ports"]}
    selector = by_kind["Deployment"]["spec"]["selector"]["matchLabels"]
    security = container["securityContext"]
    one_pod = values.get("replicas") == 1 and "autoscaler" not in values
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    yield "TOLLGATE_HTTP" not in variables or "TOLLGATE_TLS_CERT" not in variables, "/json is open beside TLS"
    yield not (one_pod and "PodDisruptionBudget" in by_kind), "the node of the only pod cannot be drained"
    yield grace > sum(times), "the grace period does not exceed the drain"
    yield ports["grpc"]["port"] == 8081, "the service has no port grpc"
    yield targets <= pod_ports, "the pod has not the ports of the service"
    if policy := by_kind.get("NetworkPolicy"):
        open_ports = {rule["ports"][0]["port"] for rule in policy["spec"]["ingress"]}
        yield open_ports == set(ports), "the network policy lets in to other ports"
    yield by_kind["Service"]["spec"]["selector"] == selector, "the service selects other pods"
    yield selector.items() <= pod["metadata"]["labels"].items(), "the deployment selects other pods"
    yield pod["spec"]["securityContext"]["runAsNonRoot"], "the pod may run as root"
    yield security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"], "the container may write or rise"
    yield mounts == {volume["name"] for volume in pod["spec"]["volumes"]}, "a volume is not mounted, or missing"
    yield all("subPath" not in mount for mount in container["volumeMounts"]), "Kubernetes does not update a subPath"
    yield len(variables) == len(container["env"]), "a variable is set twice"
    yield ("ConfigMap" in by_kind) == ("existingRules" not in values), "the rules have two places, or none"
    if "memory" in row:
        folder = next(volume for volume in pod["spec"]["volumes"] if volume["name"] == "state")["emptyDir"]["sizeLimit"]
        sizes = container["resources"]["limits"]["memory"], folder
        yield sizes == (f"{row['memory']}Mi", f"{row['state']}Mi"), f"the sizes of the memory and the state are {sizes}"
        # The values that the sizes are computed from.
        resp = {"quotas": 256, "quotaMemory": 1} | values.get("resp", {})
        expected = [":6379", str(resp["quotas"]), f"{resp['quotaMemory']}MiB"] if resp.get("enabled") else [None] * 3
        told = [variables.get(f"TOLLGATE_{name}") for name in ("RESP", "RESP_QUOTAS", "RESP_QUOTA_MEMORY", "MAX_CONNECTIONS")]
        yield told == [*expected, str(values.get("maxConnections", 10_000))], f"the program receives {told}"


def check_chart(yaml):
    try:
        from helm_python import chart as helm
        from helm_python.errors import HelmError
    except ImportError:
        print("SKIPPED the chart: there is no helm_python (pip install helm-python-sdk) here")
        return
    folder = str(PACKAGING / "helm/tollgate")
    # Severity 1 is information: a chart may have an icon.
    for message in helm.lint(folder, strict=True)["messages"]:
        if message["severity"] > 1:
            complain(f"chart, {message['path']}", message["error"])
    rows = yaml.safe_load((PACKAGING / "helm/values_test.yaml").read_text())
    with helm.Chart.load(folder) as chart:
        for row in rows:
            values, found = row["values"], []
            try:
                chart.validate_schema(values)
                texts = [text for name, text in chart.render(values=values, name="demo").items() if name.endswith(".yaml")]
                manifests = [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]
                found = ["these values are accepted"] if row.get("refused") else [why for holds, why in faults(row, manifests) if not holds]
            except HelmError as error:
                found = [] if row.get("refused") else [error]
            for why in found:
                complain("chart", f"{json.dumps(values)}: {why}")
    print(f"chart: {len(rows)} sets of values")


def check_image(program):
    """Builds the last stage around a program, from `scratch`, and runs its health check and its own check."""
    if lacks("buildah", "the image"):
        return
    last = re.sub(r"^FROM .*", "FROM scratch", LAST_STAGE.lstrip())
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


check_unit()
check_alerts()
check_containerfile()
try:
    import yaml
except ImportError:
    print("SKIPPED the composition and the chart: there is no PyYAML here")
else:
    check_composition(yaml)
    check_chart(yaml)
if sys.argv[1:2] == ["--image"]:
    check_image(sys.argv[2])
sys.exit(1 if bad else 0)
