"""The deployment files are valid, and secure by default."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "ray"


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: install evergraph[ray]")
@pytest.mark.filterwarnings("ignore")
def test_the_cluster_file_fits_the_schema_of_ray():
    from ray.autoscaler._private.util import prepare_config, validate_config

    given = yaml.safe_load((FOLDER / "cluster.yaml").read_text())
    given["provider"] |= {"head_ip": "10.0.0.5", "worker_ips": ["10.0.0.6", "10.0.0.7"]}
    found = prepare_config(given)
    validate_config(found)
    for name in ("head_start_ray_commands", "worker_start_ray_commands"):
        (start,) = [line for line in found[name] if "ray start" in line]
        assert "RAY_AUTH_MODE=token" in start
        assert "--disable-usage-stats" in start


def test_the_kubernetes_file_starts_a_cluster_with_a_token_and_a_fence():
    documents = list(yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text()))
    assert [one["kind"] for one in documents] == ["PersistentVolumeClaim", "RayCluster", "NetworkPolicy"]
    claim, cluster, policy = documents
    spec = cluster["spec"]
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in container["env"]
        assert container["volumeMounts"] == [{"name": "shared", "mountPath": "/shared"}]
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert policy["spec"]["podSelector"]["matchLabels"] == {"ray.io/cluster": cluster["metadata"]["name"]}
