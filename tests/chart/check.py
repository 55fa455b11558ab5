"""The Helm chart in docker/chart: what it renders, what it refuses, and whether Kubernetes and the server would take it.

    VERBATIM=target/debug/verbatim .verbatim/deployment/bin/python tests/chart/check.py

`./setup deployment` installs what this uses. VERBATIM is the built program, which is asked about the settings that pods
get; without it, that test is skipped.
"""

import functools
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from pathlib import Path

import yaml

CLONE = Path(__file__).resolve().parent.parent.parent
DOCKER = CLONE / "docker"
CHART = DOCKER / "chart"
TOOLS = Path(sys.prefix)
# Only the schemas of this package are used, no code.
SCHEMAS = Path(sysconfig.get_path("purelib")) / "kubernetes_validate/kubernetes-json-schema"
# The oldest that Chart.yaml allows, and the newest that there are schemas of.
KUBERNETES = ["1.27.0", "1.37.0"]
EXAMPLES = {"defaults": None, **{path.stem: path for path in sorted((CHART / "examples").glob("*.yaml"))}}
NATS = ["--set", "cluster.nats={nats://nats:4222},cluster.secret=secrets"]
# Between settings that count seconds: what the node itself needs beside them.
SLACK_SECONDS = 5


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, **more)


@functools.cache
def helm(*given, kubernetes=KUBERNETES[-1]):
    return run(TOOLS / "bin/helm", "template", "speech", CHART, "--namespace", "talk", "--kube-version", kubernetes, *given)


def rendered(example, *given, **more):
    """The objects that an example's values give."""
    values = ["--values", EXAMPLES[example]] if EXAMPLES[example] else []
    done = helm(*values, *given, **more)
    if done.returncode:
        raise AssertionError(f"{example}: {done.stderr}")
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def of_kind(objects, *kinds):
    return [found for found in objects if found["kind"] in kinds]


def pods(objects):
    """The templates of pods, by role."""
    nodes = of_kind(objects, "StatefulSet", "Deployment")
    return {found["metadata"]["labels"]["app.kubernetes.io/component"]: found["spec"]["template"] for found in nodes}


def environment(pod):
    container = pod["spec"]["containers"][0]
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def strict(schema):
    """The schema of a custom resource, so that unknown fields are errors."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if made.get("type") == "object" and "properties" in made and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def write_schemas(folder, version, objects):
    """Schemas of the objects' kinds, where kubeconform looks for them. Those of Kubernetes refer to definitions in another
    file on a server, which become part of each."""
    source = SCHEMAS / f"v{version}-local-strict"

    def load(path):
        text = re.sub(r'"(/api/_definitions\.json)?#/\$defs/', '"#/definitions/', path.read_text())
        return json.loads(text)

    definitions = load(source / "_definitions.json")["$defs"]
    for kind, version in {(found["kind"].lower(), found["apiVersion"]) for found in objects}:
        group, _, number = version.rpartition("/")
        name = "-".join(filter(None, [kind, group.split(".")[0], number])) + ".json"
        if (source / name).exists():
            (folder / name).write_text(json.dumps({**load(source / name), "definitions": definitions}))
    for path in (TOOLS / "kinds").glob("*.yaml"):
        definition = yaml.safe_load(path.read_text())["spec"]
        for version in definition["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            name = f"{definition['names']['kind'].lower()}-{definition['group'].split('.')[0]}-{version['name']}.json"
            (folder / name).write_text(json.dumps(schema))


def promtool(*given):
    return run("promtool", *given)


class Rendered(unittest.TestCase):
    """What comes out, for each of the examples."""

    def test_helm_finds_no_fault(self):
        for name, path in EXAMPLES.items():
            values = ["--values", path] if path else []
            done = run(TOOLS / "bin/helm", "lint", "--strict", "--kube-version", KUBERNETES[-1], CHART, *values)
            self.assertEqual(done.returncode, 0, f"{name}: {done.stdout}{done.stderr}")

    def conform(self, objects, folder):
        given = "---\n".join(yaml.safe_dump(found) for found in objects)
        location = f"{folder}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"
        done = run(TOOLS / "bin/kubeconform", "-strict", "-summary", "-output", "json", "-schema-location", location, input=given)
        return json.loads(done.stdout)

    def test_kubernetes_knows_every_field(self):
        for version in KUBERNETES:
            with tempfile.TemporaryDirectory() as folder:
                for name in EXAMPLES:
                    objects = rendered(name, kubernetes=version)
                    write_schemas(Path(folder), version, objects)
                    told = self.conform(objects, folder)
                    valid = {"valid": len(objects), "invalid": 0, "errors": 0, "skipped": 0}
                    self.assertEqual(told["summary"], valid, f"{name}, {version}: {json.dumps(told, indent=1)}")

    def test_fields_that_it_does_not_know_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            objects = rendered("keda")
            write_schemas(Path(folder), KUBERNETES[-1], objects)
            of_kind(objects, "ScaledObject")[0]["spec"]["maxReplicas"] = 3
            of_kind(objects, "StatefulSet")[0]["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
            faults = {found["kind"]: found["msg"] for found in self.conform(objects, folder)["resources"]}
            self.assertIn("maxReplicas", faults["ScaledObject"])
            self.assertIn("readynessProbe", faults["StatefulSet"])
            self.assertEqual(len(faults), 2, faults)

    def test_names_and_labels_meet(self):
        for name in EXAMPLES:
            objects = rendered(name)
            by_name = {(found["kind"], found["metadata"]["name"]) for found in objects}
            self.assertEqual(len(by_name), len(objects), name)
            labels = [pod["metadata"]["labels"] for pod in pods(objects).values()]

            def selects(selector):
                return any(selector.items() <= label.items() for label in labels)

            for service in of_kind(objects, "Service"):
                self.assertTrue(selects(service["spec"]["selector"]), f"{name}: {service['metadata']['name']}")
            for found in of_kind(objects, "PodDisruptionBudget", "PodMonitor", "StatefulSet", "Deployment"):
                self.assertTrue(selects(found["spec"]["selector"]["matchLabels"]), f"{name}: {found['kind']}")
            for policy in of_kind(objects, "NetworkPolicy"):
                self.assertTrue(selects(policy["spec"]["podSelector"]["matchLabels"]), name)
            for found in of_kind(objects, "HorizontalPodAutoscaler", "ScaledObject"):
                target = found["spec"]["scaleTargetRef"]
                self.assertIn((target["kind"], target["name"]), by_name, name)
            for node in of_kind(objects, "StatefulSet"):
                self.assertIn(("Service", node["spec"]["serviceName"]), by_name, name)
            for node in of_kind(objects, "StatefulSet", "Deployment"):
                spec = node["spec"]["template"]["spec"]
                claims = {claim["metadata"]["name"] for claim in node["spec"].get("volumeClaimTemplates", [])}
                volumes = {volume["name"] for volume in spec["volumes"]} | claims
                containers = spec["containers"] + spec.get("initContainers", [])
                mounted = {mount["name"] for container in containers for mount in container["volumeMounts"]}
                self.assertEqual(mounted, volumes, name)

    def test_a_node_is_killed_only_after_it_has_drained(self):
        for name in EXAMPLES:
            for given in [], ["--set", "shutdown.drainSeconds=900,shutdown.graceSeconds=20"]:
                for role, pod in pods(rendered(name, *given)).items():
                    settings = environment(pod)
                    grace = float(settings["VERBATIM_SHUTDOWN__GRACE_SECONDS"])
                    drain = float(settings["VERBATIM_HTTP__DRAIN_TIMEOUT_MS"]) / 1000
                    settle = float(pod["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
                    needed = settle + grace + drain + SLACK_SECONDS
                    self.assertGreaterEqual(pod["spec"]["terminationGracePeriodSeconds"], needed, f"{name}, {role}")
                    # The node is seen to be leaving before its port closes.
                    probe = pod["spec"]["containers"][0]["readinessProbe"]
                    self.assertLess(probe["periodSeconds"] * probe["failureThreshold"], grace, f"{name}, {role}")

    def test_accepted_jobs_outlive_their_pod(self):
        for name in EXAMPLES:
            objects = rendered(name)
            self.assertEqual(of_kind(objects, "Deployment"), [], name)
            for node in of_kind(objects, "StatefulSet"):
                self.assertEqual(node["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], "state", name)
                self.assertEqual(set(node["spec"]["persistentVolumeClaimRetentionPolicy"].values()), {"Retain"}, name)

    def test_containers_have_few_rights(self):
        for name in EXAMPLES:
            for pod in pods(rendered(name)).values():
                self.assertTrue(pod["spec"]["securityContext"]["runAsNonRoot"], name)
                self.assertFalse(pod["spec"]["automountServiceAccountToken"], name)
                for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
                    self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"], name)
                    self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]}, name)

    def test_gpus_are_asked_for(self):
        engine = pods(rendered("defaults"))["engine"]["spec"]
        self.assertEqual(engine["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], 1)
        self.assertEqual(engine["tolerations"][0]["key"], "nvidia.com/gpu")
        engine = pods(rendered("cpu"))["engine"]
        self.assertNotIn("nvidia.com/gpu", engine["spec"]["containers"][0]["resources"]["limits"])
        self.assertNotIn("tolerations", engine["spec"])
        self.assertEqual(environment(engine)["NVIDIA_VISIBLE_DEVICES"], "void")

    def test_a_private_registry_has_all_images(self):
        for pod in pods(rendered("air-gapped")).values():
            for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
                self.assertRegex(container["image"], r"^registry\.internal/speech/verbatim@sha256:")
        more = ["--set", "api.enabled=true,image.registry=registry.internal/", *NATS]
        for pod in pods(rendered("defaults", *more)).values():
            self.assertRegex(pod["spec"]["containers"][0]["image"], r"^registry\.internal/verbatim:")

    def test_the_version_is_the_program_s(self):
        version = re.search(r'^version = "(.+)"', (CLONE / "Cargo.toml").read_text(), re.MULTILINE)[1]
        self.assertEqual(yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"], version)


class Refused(unittest.TestCase):
    """Values that would not work, each with the reason."""

    def test_contradictions(self):
        cases = [
            (["engine.replicas=2"], "need `cluster.nats`"),
            (["api.enabled=true"], "need `cluster.nats`"),
            (["autoscaling.enabled=true"], "need `cluster.nats`"),
            (["config=a = 1", "configSecret=mine"], "not both"),
            (["engine.gpus=0"], "needs `engine.gpus`"),
            (["models.volume.kind=existing"], "models.volume.claim"),
            (["models.volume.kind=claim", "models.volume.readOnly=true"], "a new claim is empty"),
            (["autoscaling.enabled=true", "autoscaling.minReplicas=3", "autoscaling.maxReplicas=2",
              *NATS[1:]], "less than"),
            (["autoscaling.enabled=true", "autoscaling.queueSeconds=0", "autoscaling.streamUse=0",
              *NATS[1:]], "needs a reason"),
            (["cluster.nats={nats://nats:4222}"], "have secrets in common"),
            (["tlsSecret=tls", *NATS[1:]], "set `cluster.advertise` to https"),
        ]
        for values, reason in cases:
            done = helm(*(part for value in values for part in ("--set", value)))
            self.assertNotEqual(done.returncode, 0, values)
            self.assertIn(reason, done.stderr, values)

    def test_unknown_and_misshapen_values(self):
        for value in ["engine.replica=2", "engine.gpus=one", "autoscaling.by=cron", "autoscaling.streamUse=70", "state.size=big",
                      "cluster.nats={10.0.0.1}", "ingress.enabled=true", "image.pullPolicy=Sometimes", "surprise=1"]:
            done = helm("--set", value)
            self.assertNotEqual(done.returncode, 0, value)
            self.assertRegex(done.stderr, "values don't meet the specifications of the schema", value)


class Monitored(unittest.TestCase):
    """Alerts, dashboard and scaling, by Prometheus's own tool."""

    def test_alerts_and_dashboard_are_those_of_the_repository(self):
        objects = rendered("cluster")
        alerts = yaml.safe_load((DOCKER / "prometheus/alerts.yaml").read_text())
        self.assertEqual(of_kind(objects, "PrometheusRule")[0]["spec"], alerts)
        dashboard = next(found for found in of_kind(objects, "ConfigMap") if found["metadata"]["name"].endswith("-dashboard"))
        self.assertEqual(json.loads(dashboard["data"]["verbatim.json"]),
                         json.loads((DOCKER / "grafana/verbatim.json").read_text()))

    def test_promtool_finds_no_fault(self):
        folder = DOCKER / "prometheus"
        for given in ["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]:
            done = run("promtool", *given, cwd=folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # The address of compose's own service is not looked up.
        done = run("promtool", "check", "config", "--syntax-only", "prometheus.yaml", cwd=folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def queries(self):
        """Of each variant, by the name of the metric; with the placeholders of the adapter filled in as it does."""
        keda = of_kind(rendered("keda", "--set", "autoscaling.waitingJobs=20"), "ScaledObject")[0]["spec"]["triggers"]
        found = next(found for found in of_kind(rendered("cluster"), "ConfigMap") if found["metadata"]["name"].endswith("-adapter"))
        rules = yaml.safe_load(found["data"]["config.yaml"])
        adapter = {}
        for rule in rules["rules"] + rules["externalRules"]:
            kept = 'pod=~"speech-verbatim-engine-0|speech-verbatim-engine-1"'
            matchers = 'namespace="talk"' + (f",{kept}" if rule in rules["rules"] else "")
            by = "pod" if rule in rules["rules"] else "namespace"
            adapter[rule["name"]["as"]] = rule["metricsQuery"].replace("<<.LabelMatchers>>", matchers).replace("<<.GroupBy>>", by)
        return {trigger["name"]: trigger["metadata"]["query"] for trigger in keda}, adapter

    def test_both_variants_scale_by_the_same(self):
        keda, adapter = self.queries()
        self.assertEqual(set(keda), set(adapter))
        self.assertEqual(len(keda), 3)
        metrics = of_kind(rendered("cluster"), "HorizontalPodAutoscaler")[0]["spec"]["metrics"]
        asked = {metric[metric["type"].lower()]["metric"]["name"] for metric in metrics}
        self.assertEqual(asked, set(adapter))

    def test_the_queries_say_what_the_targets_mean(self):
        keda, adapter = self.queries()
        ours = 'namespace="talk", pod="speech-verbatim-engine-'
        other = 'namespace="talk", pod="other-engine-0"'
        series = {
            f'stt_held_wait_seconds{{{ours}0"}}': 2, f'stt_held_wait_seconds{{{ours}1"}}': 10, f'stt_held_wait_seconds{{{other}}}': 99,
            f'engine_active_requests{{kind="stream", {ours}0"}}': 40, f'engine_active_requests{{kind="stream", {ours}1"}}': 30,
            f'engine_active_requests{{kind="batch", {ours}1"}}': 500,
            f'engine_estimated_stream_capacity{{{ours}0"}}': 50, f'engine_estimated_stream_capacity{{{ours}1"}}': 100,
            # An engine that does not work: its streams count as they are.
            f'engine_active_requests{{kind="stream", {other}}}': 5, f'engine_estimated_stream_capacity{{{other}}}': 0,
            f'verbatim_jobs{{phase="queued", {ours}0"}}': 12, f'verbatim_jobs{{phase="queued", {ours}1"}}': 30,
            f'verbatim_jobs{{phase="delivering", {ours}1"}}': 1000,
        }
        pod = "speech-verbatim-engine-"
        expected = [
            (keda["verbatim_queue_seconds"], {"": 12}),
            (keda["verbatim_stream_use"], {"": 1.1}),
            (keda["verbatim_waiting_jobs"], {"": 42}),
            (adapter["verbatim_queue_seconds"], {f'pod="{pod}0"': 2, f'pod="{pod}1"': 10}),
            (adapter["verbatim_stream_use"], {f'pod="{pod}0"': 0.8, f'pod="{pod}1"': 0.3}),
            (adapter["verbatim_waiting_jobs"], {'namespace="talk"': 42}),
        ]
        tests = {
            "rule_files": [], "evaluation_interval": "1m",
            "tests": [{
                "interval": "1m",
                "input_series": [{"series": name, "values": f"{value}x5"} for name, value in series.items()],
                "promql_expr_test": [{
                    "expr": query, "eval_time": "3m",
                    "exp_samples": [{"labels": "{%s}" % labels, "value": value} for labels, value in samples.items()],
                } for query, samples in expected],
            }],
        }
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "queries.yaml")
            path.write_text(yaml.safe_dump(tests))
            done = promtool("test", "rules", path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_metrics_are_the_program_s(self):
        defined = set()
        for path in (CLONE / "src/telemetry").glob("*.rs"):
            defined |= set(re.findall(r'"([a-z_]+)"', path.read_text()))
        text = " ".join(query for variant in self.queries() for query in variant.values())
        used = set(re.findall(r"\b(?:stt|engine|verbatim)_[a-z_]+(?=\{)", text))
        self.assertEqual(len(used), 4)
        if not any(name.startswith("engine_") for name in defined):
            self.skipTest("this program has no metrics under the names of hosted servers")
        self.assertEqual(used - defined, set())


class Settings(unittest.TestCase):
    """The pods' environment, by the program itself."""

    def settings(self, variables):
        with tempfile.TemporaryDirectory() as home:
            return run(os.environ["VERBATIM"], "config", env={"HOME": home, "PATH": os.environ["PATH"], **variables})

    @unittest.skipUnless("VERBATIM" in os.environ, "VERBATIM is not set")
    def test_the_program_knows_all_variables(self):
        has_clusters = "[cluster]" in self.settings({}).stdout
        for name in EXAMPLES:
            if not has_clusters and any("VERBATIM_CLUSTER__NATS" in environment(pod) for pod in pods(rendered(name)).values()):
                print(f"skipped {name}: this program has no clusters")
                continue
            for role, pod in pods(rendered(name)).items():
                given = {"POD_NAME": "speech-verbatim-engine-0", "POD_IP": "10.1.2.3"}
                for variable, value in environment(pod).items():
                    if value is None or not variable.startswith("VERBATIM_"):
                        continue
                    for before, text in given.items():
                        value = value.replace(f"$({before})", text)
                    # This file lies in the pod alone.
                    if variable != "VERBATIM_CONFIG_FILE":
                        given[variable] = value
                done = self.settings({key: value for key, value in given.items() if key.startswith("VERBATIM_")})
                self.assertEqual(done.returncode, 0, f"{name}, {role}: {done.stderr}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
