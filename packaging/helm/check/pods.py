"""Runs the pods of a rendered chart as a kubelet would, in containers on this machine, as root.

ETCD=/usr/bin/etcd python3 packaging/helm/check/pods.py OBJECTS IMAGE.json ROOTFS WORK

``OBJECTS``: JSON of what `helm template` rendered for three nodes; ``IMAGE.json`` and ``ROOTFS``:
the image of the broker, its configuration and where it is mounted.  etcd is a program of this
machine, run in the same root file system.

Of Kubernetes there is: an address and a host name for each pod, volumes with the owners and modes
that `fsGroup` gives, init containers, variables from Secrets, security contexts, the three probes,
preStop, SIGTERM, the grace period.  There is no scheduler, no Service and no network policy.
"""

import base64
import contextlib
import copy
import ctypes
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from oci_config import mount, runtime_config

NETWORK = "10.213.77"
GROUP = 5672
START_S = 90
CLONE_NEWNET = 0x40000000

Object = dict[str, Any]
began = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - began:5.0f} s  {text}", flush=True)


def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=True, text=True, capture_output=True, **options)


class Cluster:
    """What all pods share: a bridge, host names, Secrets and ConfigMaps."""

    def __init__(self, objects: list[Object], image: Object, root: str, work: Path) -> None:
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in objects}
        self.image, self.root, self.work = image, root, work
        self.bridge = f"pods{os.getpid()}"
        self.pods: dict[str, Pod] = {}
        self.etcd = os.environ["ETCD"]
        run("ip", "netns", "add", self.bridge)
        run("ip", "-n", self.bridge, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", self.bridge, "address", "add", f"{NETWORK}.1/24", "dev", "bridge")
        for device in ("lo", "bridge"):
            run("ip", "-n", self.bridge, "link", "set", device, "up")
        for (kind, name), one in self.objects.items():
            if kind == "StatefulSet":
                for number in range(one["spec"]["replicas"]):
                    self.pods[f"{name}-{number}"] = Pod(self, one, number, len(self.pods) + 10)
        lines = ["127.0.0.1 localhost"]
        lines += [f"{pod.address} {pod.host} {pod.name}" for pod in self.pods.values()]
        (work / "hosts").write_text("\n".join(lines) + "\n")

    def data(self, kind: str, name: str) -> dict[str, bytes]:
        data = self.objects[kind, name]["data"]
        if kind == "Secret":
            return {key: base64.b64decode(text) for key, text in data.items()}
        return {key: text.encode() for key, text in data.items()}

    def close(self) -> None:
        for pod in self.pods.values():
            pod.kill()
            with contextlib.suppress(subprocess.CalledProcessError):
                run("ip", "netns", "delete", pod.network)
        run("ip", "netns", "delete", self.bridge)


class Pod:
    """A pod of a StatefulSet; ``start`` may be called again after ``kill`` and ``stop``."""

    def __init__(self, cluster: Cluster, owner: Object, number: int, address: int) -> None:
        self.cluster = cluster
        self.name = f"{owner['metadata']['name']}-{number}"
        self.spec = owner["spec"]["template"]["spec"]
        self.container = self.spec["containers"][0]
        self.address = f"{NETWORK}.{address}"
        self.host = f"{self.name}.{owner['spec']['serviceName']}.default.svc"
        self.network = f"{cluster.bridge}-{address}"
        self.directory = cluster.work / self.name
        self.pid = 0
        run("ip", "netns", "add", self.network)
        link = f"pod{address}"
        for words in (
            f"ip -n {cluster.bridge} link add {link} type veth peer name eth0 netns {self.network}",
            f"ip -n {cluster.bridge} link set {link} master bridge up",
            f"ip -n {self.network} address add {self.address}/24 dev eth0",
            f"ip -n {self.network} link set eth0 up",
            f"ip -n {self.network} link set lo up",
        ):
            run(*words.split())
        self.claim = self.directory / "claim"
        self.claim.mkdir(parents=True)
        os.chown(self.claim, 0, GROUP)
        self.claim.chmod(0o2775)
        (self.claim / "lost+found").mkdir(mode=0o700)

    # -- volumes -------------------------------------------------------------------------

    def _volumes(self) -> dict[str, Path]:
        """As they are when a pod begins: all but the claim anew."""
        top = self.directory / "volumes"
        shutil.rmtree(top, ignore_errors=True)
        found = {"data": self.claim}
        for volume in self.spec["volumes"]:
            place = found[volume["name"]] = top / volume["name"]
            place.mkdir(parents=True)
            os.chown(place, 0, GROUP)
            place.chmod(0o2777)
            source = volume.get("secret") or volume.get("configMap")
            if source is None:
                assert "emptyDir" in volume, volume
                continue
            kind = "Secret" if "secret" in volume else "ConfigMap"
            data = self.cluster.data(kind, source.get("secretName") or source["name"])
            items = source.get("items") or [{"key": key, "path": key} for key in data]
            for item in items:
                file = place / item["path"]
                file.write_bytes(data[item["key"]])
                os.chown(file, 0, GROUP)
                file.chmod(source.get("defaultMode", 0o644))
        return found

    # -- containers ----------------------------------------------------------------------

    def _environment(self, container: Object) -> list[str]:
        values: dict[str, str] = {}
        for variable in container.get("env", []):
            source = variable.get("valueFrom", {})
            if "fieldRef" in source:
                assert source["fieldRef"]["fieldPath"] == "metadata.name"
                text = self.name
            elif "secretKeyRef" in source:
                named = source["secretKeyRef"]
                text = self.cluster.data("Secret", named["name"])[named["key"]].decode()
            else:
                text = variable["value"].replace("$(POD_NAME)", self.name)
            values[variable["name"]] = text
        return [f"{name}={text}" for name, text in values.items()]

    def _bundle(self, container: Object, volumes: dict[str, Path]) -> Path:
        """Make the directory of the container, with the configuration that the runtime reads."""
        bundle = self.directory / container["name"]
        bundle.mkdir(exist_ok=True)
        cluster, image = self.cluster, copy.deepcopy(self.cluster.image)
        if "command" in container:
            image["Entrypoint"], image["Cmd"] = container["command"], []
        if "args" in container:
            args = [word.replace("$(POD_NAME)", self.name) for word in container["args"]]
            image["Cmd"] = args
        security = self.spec["securityContext"]
        image["User"] = f"{security['runAsUser']}:{security['runAsGroup']}"
        config = runtime_config(
            image,
            cluster.root,
            str(self.claim),
            f"/run/netns/{self.network}",
            self._environment(container),
        )
        config["hostname"] = self.name
        config["process"]["user"]["additionalGids"] = [security["fsGroup"]]
        own = container["securityContext"]
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert own["allowPrivilegeEscalation"] is False
        config["root"]["readonly"] = own["readOnlyRootFilesystem"]
        mounts = [one for one in config["mounts"] if one["source"] != str(self.claim)]
        mounts.append(mount("bind", "/etc/hosts", "bind", "ro", source=str(cluster.work / "hosts")))
        if container["name"] == "etcd":
            binary = mount("bind", "/usr/local/bin/etcd", "bind", "ro", source=cluster.etcd)
            mounts.append(binary)
            config["process"]["cwd"] = "/"
        for one in container["volumeMounts"]:
            source = volumes[one["name"]] / one.get("subPath", "")
            mode = "ro" if one.get("readOnly") else "rw"
            mounts.append(mount("bind", one["mountPath"], "rbind", mode, source=str(source)))
        config["mounts"] = mounts
        (bundle / "config.json").write_text(json.dumps(config))
        return bundle

    def _runtime(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return run("runc", "--root", str(self.cluster.work / "runc"), *words, **options)

    def _id(self, container: Object) -> str:
        return f"{self.network}-{container['name']}"

    def start(self) -> None:
        volumes = self._volumes()
        for container in self.spec.get("initContainers", []):
            bundle = self._bundle(container, volumes)
            self._runtime("run", "--bundle", str(bundle), self._id(container))
        bundle = self._bundle(self.container, volumes)
        pid_file = bundle / "pid"
        with (bundle / "log").open("ab") as log:
            subprocess.run(
                [
                    *("runc", "--root", str(self.cluster.work / "runc"), "run", "--detach"),
                    *("--bundle", str(bundle), "--pid-file", str(pid_file)),
                    self._id(self.container),
                ],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.pid = int(pid_file.read_text())

    def log(self) -> str:
        return (self.directory / self.container["name"] / "log").read_text()

    def execute(self, *words: str) -> str:
        return self._runtime("exec", self._id(self.container), *words).stdout

    def is_running(self) -> bool:
        return self.pid > 0 and Path(f"/proc/{self.pid}").exists()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.pid:
                os.kill(self.pid, 9)
        self._gone(20)

    def _gone(self, patience_s: float) -> bool:
        until = time.monotonic() + patience_s
        while self.is_running():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        if self.pid:
            with contextlib.suppress(subprocess.CalledProcessError):
                self._runtime("delete", "--force", self._id(self.container))
        self.pid = 0
        return True

    def stop(self) -> tuple[float, str]:
        """As when the pod is deleted: seconds it took, and what preStop said."""
        started, said = time.monotonic(), ""
        hook = self.container.get("lifecycle", {}).get("preStop")
        if hook:
            try:
                said = self.execute(*hook["exec"]["command"])
            except subprocess.CalledProcessError as error:
                said = error.stderr
        os.kill(self.pid, 15)
        left_s = self.spec["terminationGracePeriodSeconds"] - (time.monotonic() - started)
        assert self._gone(left_s), f"{self.name} does not end within its grace period"
        lines = [line for line in said.splitlines() if not line.startswith("waiting for")]
        return time.monotonic() - started, lines[0] if lines else ""

    # -- probes --------------------------------------------------------------------------

    def probe(self, kind: str) -> bool:
        """``kind``: startup, liveness or readiness; asked from outside the pod, by its address."""
        wanted = self.container[f"{kind}Probe"]["httpGet"]
        (port,) = (
            one["containerPort"] for one in self.container["ports"] if one["name"] == wanted["port"]
        )
        with contextlib.suppress(OSError, http.client.HTTPException):
            asked = http.client.HTTPConnection(self.address, port, timeout=5)
            asked.request("GET", wanted["path"])
            return 200 <= asked.getresponse().status < 400
        return False

    def await_ready(self) -> None:
        until = time.monotonic() + START_S
        for kind in ("startup", "readiness", "liveness"):
            while not self.probe(kind):
                assert self.is_running(), f"{self.name} has ended:\n{self.log()[-3000:]}"
                assert time.monotonic() < until, f"{self.name}: {kind}\n{self.log()[-3000:]}"
                time.sleep(0.2)


CLIENT = """
import sys
from penstock.client.amqp import ClientError, Connection, Endpoint
from penstock.protocols.amqp.codec.properties import Properties
import itertools, time
persistent = Properties(delivery_mode=2)
"""
PUBLISH = """
for batch in itertools.count(0):
    while True:
        try:
            if batch == 0 or channel is None:
                channel = Connection(Endpoint.parse(next(urls)), timeout_s=5).channel()
                channel.queue_declare("orders", durable=True)
                channel.confirm_select()
            numbers = range(batch * 20, batch * 20 + 20)
            for number in numbers:
                channel.publish(b"%d" % number, routing_key="orders", properties=persistent)
            if channel.wait_for_confirms(5):
                raise ClientError("nacked")
            break
        except (ClientError, OSError, TimeoutError) as error:
            channel = None
            print("again", type(error).__name__, error, file=sys.stderr, flush=True)
            time.sleep(0.3)
    print(batch * 20 + 20, flush=True)
    time.sleep(0.02)
"""
CONSUME = """
numbers = set()
channel = Connection(Endpoint.parse(next(urls))).channel()
channel.queue_declare("orders", passive=True)
channel.consume("orders", no_ack=False)
while (delivery := channel.next_delivery(3)) is not None:
    numbers.add(int(delivery.body))
missing = set(range(expected)) - numbers
assert not missing, f"{len(missing)} of {expected} are missing, such as {sorted(missing)[:5]}"
print(f"{expected} messages were confirmed, {len(numbers)} are there, none is missing")
"""


class Story:
    """What is done to the three nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.etcds = [pod for pod in cluster.pods.values() if pod.container["name"] == "etcd"]
        self.brokers = [pod for pod in cluster.pods.values() if pod not in self.etcds]
        auth = cluster.data("Secret", "check-penstock-auth")
        user, password = auth["username"].decode(), auth["password"].decode()
        self.urls = [f"amqp://{user}:{password}@{pod.address}:5672/" for pod in self.brokers]

    def client(self, program: str, urls: list[str], **more: object) -> subprocess.Popen[str]:
        """Of the image's own Python, outside all pods."""
        text = CLIENT + f"urls = itertools.cycle({urls!r})\nchannel = None\n"
        text += "".join(f"{name} = {value!r}\n" for name, value in more.items()) + program
        python = f"{self.cluster.root}/opt/penstock/lib"
        (site,) = Path(python).glob("python3*/site-packages")
        return subprocess.Popen(
            [sys.executable, "-c", text],
            env={**os.environ, "PYTHONPATH": str(site), "PENSTOCK_PURE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def tell(self) -> None:
        for pod in self.etcds + self.brokers:
            pod.start()
        for pod in self.etcds + self.brokers:
            pod.await_ready()
        say(f"{len(self.etcds)} etcds and {len(self.brokers)} nodes are ready")
        self.strangers()
        first = self.brokers[0]
        policy = '{"ha-mode":"exactly","ha-params":2,"ha-sync-mode":"automatic"}'
        first.execute("penstockctl", "set_policy", "ha", ".*", policy)
        publisher = self.client(PUBLISH, self.urls)
        confirmed: list[int] = []
        reader = threading.Thread(
            target=lambda: confirmed.extend(int(line) for line in publisher.stdout or []),
            daemon=True,
        )
        reader.start()
        try:
            self.events(confirmed, publisher)
        finally:
            publisher.terminate()
            _, told = publisher.communicate()
            reader.join()
        say(f"the publisher connected again {told.count('again')} times")
        for pod in self.brokers:
            pod.await_ready()
        consumer = self.client(CONSUME, self.urls, expected=confirmed[-1])
        out, err = consumer.communicate(timeout=120)
        assert consumer.returncode == 0, err
        say(out.strip())

    def strangers(self) -> None:
        """etcd and the nodes refuse a client without a certificate of the chart."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for place in ((self.etcds[0].address, 2379), (self.brokers[0].address, 25672)):
            with socket.create_connection(place, 5) as plain, context.wrap_socket(plain) as asked:
                try:
                    heard = asked.recv(1)
                except ssl.SSLError as error:
                    words = "CERTIFICATE_REQUIRED", "BAD_CERTIFICATE"  # by Go's age
                    said = str(error)
                    assert any(word in said for word in words), (place, said)
                else:
                    raise AssertionError((place, heard))
        say("etcd and the nodes refuse a client without a certificate of the chart")

    def events(self, confirmed: list[int], publisher: subprocess.Popen[str]) -> None:
        self.advance(confirmed, publisher)
        say(self.brokers[0].execute("penstock", "cluster", "status").splitlines()[0])
        # Its clients are the publisher, and the queue's master is there.
        pod = self.brokers[0]
        pod.kill()
        say(f"{pod.name}: kill -9")
        self.advance(confirmed, publisher)
        pod.start()
        pod.await_ready()
        self.in_step()
        say(f"{pod.name}: ready again, with all it had missed")
        for pod in reversed(self.brokers):
            took_s, said = pod.stop()
            say(f"{pod.name}: drained and stopped in {took_s:.0f} s: {said}")
            self.advance(confirmed, publisher)
            pod.start()
            pod.await_ready()
            self.in_step()
        self.etcds[0].kill()
        say(f"{self.etcds[0].name}: kill -9")
        self.advance(confirmed, publisher)
        self.etcds[0].start()
        self.etcds[0].await_ready()
        self.advance(confirmed, publisher)

    def advance(self, confirmed: list[int], publisher: subprocess.Popen[str]) -> None:
        """Publishing goes on."""
        until, wanted = time.monotonic() + 30, (confirmed[-1] if confirmed else 0) + 500
        while not confirmed or confirmed[-1] < wanted:
            assert publisher.poll() is None, publisher.stderr and publisher.stderr.read()
            assert time.monotonic() < until, "nothing is confirmed any more"
            time.sleep(0.1)

    def in_step(self) -> None:
        """The mirrors have everything again."""
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(subprocess.CalledProcessError):
                shown = self.brokers[0].execute("penstock", "cluster", "status")
                if " syncing " not in shown and " down " not in shown:
                    return
            assert time.monotonic() < until, shown
            time.sleep(0.5)


def main() -> None:
    objects, image = (json.loads(Path(name).read_text()) for name in sys.argv[1:3])
    work = Path(sys.argv[4])
    work.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    cluster = Cluster(objects, image["Docker"]["config"], sys.argv[3], work)
    try:
        # From here on this process, too, is in the network of the pods and not in the machine's.
        with open(f"/run/netns/{cluster.bridge}") as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        Story(cluster).tell()
    except BaseException:
        for pod in cluster.pods.values():
            with contextlib.suppress(OSError):
                print(f"--- {pod.name}\n{pod.log()[-1500:]}", file=sys.stderr)
        raise
    finally:
        cluster.close()
        shutil.rmtree(work, ignore_errors=True)
    say("the chart's pods are as they should be")


if __name__ == "__main__":
    main()
