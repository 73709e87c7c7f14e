//! `conductor provider` beside a real Kubernetes: a claim there is a database of this machine, which grows and whose login is rotated.

#[path = "../../managers/tests/common/mod.rs"]
mod managers;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use conductor_testkit::{Plane, skip};
use http::Method;
use managers::{Cluster, phase_is, target};
use serde_json::{Value, json};

const DATABASES: &str = "storage.conductor.io/v1alpha1";
const MERGE: &str = "application/merge-patch+json";

/// A program, for as long as this lives.
struct Program(Child);

impl Program {
    fn start(arguments: &[&str], kubeconfig: &Path) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
        command.args(arguments).arg("--kubeconfig").arg(kubeconfig).stdout(Stdio::null()).stderr(Stdio::null());
        Program(command.spawn().expect("starts"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What psql answers.
fn sql(uri: &str, statement: &str) -> Option<String> {
    let output = Command::new("psql").args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-c", statement, uri]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn uri(secret: &Value) -> String {
    let text = secret["data"]["uri"].as_str().unwrap_or_default();
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("is base64");
    String::from_utf8(bytes).expect("is text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_this_machine_serves_a_claim_in_a_real_kubernetes() {
    const NAME: &str = "a_database_of_this_machine_serves_a_claim_in_a_real_kubernetes";
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|e| e.path().join("bin"));
    if conductor_local::lack::find_program("postgres", &debian.collect::<Vec<_>>()).is_none() {
        return skip(NAME, "there is no postgres: apt-get install postgresql");
    }
    let plane = match Plane::start("*") {
        Ok(plane) => plane,
        Err(why) => return skip(NAME, &why),
    };
    let directory = tempfile::tempdir().expect("makes a directory");
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("may");
    let data = directory.path().join("data");
    let data = data.to_str().expect("is text");
    let cluster = Cluster::of(plane.cluster().await.client());
    let _manager = Program::start(&["manager"], &plane.kubeconfig());
    let _provider = Program::start(&["provider", "databases", "--data-dir", data], &plane.kubeconfig());
    let class = target(DATABASES, "RelationalDatabaseClass", "", "postgres");
    cluster.until(&class, "there", |class| class.is_some()).await;
    let own = target(DATABASES, "RelationalDatabaseClaim", "default", "db");
    let claim = json!({
        "apiVersion": DATABASES, "kind": "RelationalDatabaseClaim", "metadata": {"name": "db", "namespace": "default"},
        "spec": {"class": "postgres", "engine": "postgres"},
    });
    // a new admission policy is refused by Kubernetes until it knows the kind of its parameters
    for _ in 0..600 {
        match cluster.api.apply(&claim).await {
            Ok(_) => break,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
    let bound = cluster.until(&own, "bound", phase_is("Bound")).await.expect("is there");
    let secret = target("v1", "Secret", "default", "db-relationaldatabase");
    let written = |secret: Option<&Value>| secret.is_some_and(|secret| secret["data"]["uri"].is_string());
    let first = uri(&cluster.until(&secret, "written", written).await.expect("is there"));
    assert_eq!(
        sql(&first, "create table t (n int); insert into t values (42); select n from t").as_deref(),
        Some("42")
    );

    let patch = async |path: String, patch: Value| {
        let done = cluster.api.call(Method::PATCH, &path, MERGE, patch.to_string().into_bytes()).await;
        done.unwrap_or_else(|failure| panic!("{path}: {failure}"));
    };
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    patch(format!("/apis/{DATABASES}/namespaces/default/relationaldatabaseclaims/db"), more).await;
    let has = |claim: Option<&Value>| claim.is_some_and(|claim| claim["status"]["capacity"]["storage"] == "2Gi");
    cluster.until(&own, "grown", has).await;

    let resource = bound["spec"]["resourceName"].as_str().expect("is named");
    let instances = "/apis/database.local.conductor.io/v1alpha1/namespaces/conductor-system/postgresinstances";
    patch(format!("{instances}/{resource}"), json!({"spec": {"rotate": 1, "rotationGraceSeconds": 0}})).await;
    let other = |secret: Option<&Value>| secret.is_some_and(|secret| uri(secret) != first);
    let second = uri(&cluster.until(&secret, "rotated", other).await.expect("is there"));
    assert_eq!(sql(&second, "select n from t").as_deref(), Some("42"));
    let instance = target("database.local.conductor.io/v1alpha1", "PostgresInstance", "conductor-system", resource);
    let retired = |instance: Option<&Value>| instance.is_some_and(|instance| instance["status"]["retired"] == 1);
    cluster.until(&instance, "rid of the old login", retired).await;
    assert_eq!(sql(&first, "select 1"), None);

    // and nothing of it is left on this machine
    let path = format!("/apis/{DATABASES}/namespaces/default/relationaldatabaseclaims/db");
    cluster.api.call(Method::DELETE, &path, "application/json", Vec::new()).await.expect("is deleted");
    cluster.until(&instance, "gone", |instance| instance.is_none()).await;
    assert!(conductor_local::identity::marked(data).is_empty());
}
