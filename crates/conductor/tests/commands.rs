//! What the commands say: which file, why, what to do; and nothing that contradicts itself.

mod common;

use std::process::Command;

use common::database::{CLAIMS, RESOURCES, claim};
use common::world::{World, soon};
use serde_json::{Value, json};

/// A command without a server: what it says when it fails.
fn fails(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    command.args(arguments).env_clear().envs(variables.iter().copied()).current_dir("/");
    let output = command.output().expect("runs");
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_is_wrong_with_a_kubeconfig_is_said_with_its_name() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).expect("may");
        path.to_str().expect("is text").to_owned()
    };
    let (broken, empty) = (file("broken", "clusters: ["), file("empty", "apiVersion: v1\nkind: Config\n"));
    for (file, why) in
        [(&*broken, "no YAML"), (&*empty, "no current-context"), ("/no/such/file", "No such file or directory")]
    {
        for said in [
            fails(&["classes", "--kubeconfig", file], &[("HOME", "/")]),
            fails(&["classes"], &[("HOME", "/"), ("KUBECONFIG", file)]),
        ] {
            assert!(said.contains(file) && said.contains(why) && said.contains("--kubeconfig FILE"), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
    let said = fails(&["classes", "--context", "other"], &[("HOME", "/"), ("KUBECONFIG", &empty)]);
    assert!(said.contains("no context other"), "{said}");
    let said = fails(&["classes"], &[("HOME", directory.path().to_str().expect("is text"))]);
    assert!(said.contains("there is no kubeconfig") && said.contains("conductor up"), "{said}");
    // nothing is made in whatever directory one happens to be in
    for home in [&[][..], &[("HOME", "")]] {
        let said = fails(&["up", "--listen", "127.0.0.1:0"], home);
        assert!(said.contains("HOME is not set") && said.contains("--data-dir"), "{said}");
        let said = fails(&["user", "add", "jane", "--role", "cluster-admin"], home);
        assert!(said.contains("HOME is not set"), "{said}");
    }
    assert!(!std::path::Path::new("/.conductor").exists());
}

fn database(world: &World, name: &str, class: &str) {
    let object = json!({
        "apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabase",
        "metadata": {"name": name, "finalizers": ["test/held"]},
        "spec": {"class": class, "engine": "mysql", "capacity": {"storage": "7Gi"}},
    });
    world.create(RESOURCES, &object);
}

/// The row of a candidate.
fn row<'t>(explained: &'t str, name: &str) -> &'t str {
    explained.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_else(|| panic!("{name}: {explained}"))
}

#[test]
fn an_explanation_does_not_contradict_itself() {
    let world = World::new();
    database(&world, "hand", "by-hand");
    claim(&world, "named", json!({"class": "by-hand", "resourceName": "hand"}));
    world.until(&format!("{CLAIMS}/named"), "bound", |c| c["status"]["phase"] == "Bound");
    let said = world.conductor(&["explain", "rdbc/named"]);
    assert!(row(&said, "hand").contains("is bound to this claim"), "{said}");
    let tree = world.conductor(&["tree", "rdb/hand"]);
    assert!(!tree.contains("gone") && tree.contains("RelationalDatabaseClass by-hand  a name"), "{tree}");
    world.delete(&format!("{RESOURCES}/hand"));
    let said = world.conductor(&["explain", "rdbc/named"]);
    assert!(said.contains("stays bound to RelationalDatabase hand") && !said.contains("waits"), "{said}");
    assert!(row(&said, "hand").contains("being deleted"), "{said}");
    claim(&world, "late", json!({"class": "by-hand", "resourceName": "hand"}));
    let said = soon("said", || {
        Some(world.conductor(&["explain", "rdbc/late"])).filter(|said| row(said, "hand").contains("being deleted"))
    });
    assert!(said.contains("waits: RelationalDatabase hand"), "{said}");
    world.patch(&format!("{RESOURCES}/hand"), json!({"metadata": {"finalizers": null}}));
}

#[test]
fn a_plan_refuses_what_the_server_would() {
    let world = World::new();
    let directory = tempfile::tempdir().expect("makes a directory");
    let plan = |objects: &[Value]| {
        let file = directory.path().join("objects.yaml");
        let text: Vec<String> = objects.iter().map(Value::to_string).collect();
        std::fs::write(&file, text.join("\n---\n")).expect("may");
        world.run(&["plan", "-f", file.to_str().expect("is text")])
    };
    let of = |name: &str, spec: Value| {
        json!({
            "apiVersion": "network.conductor.io/v1alpha1", "kind": "IngressClaim", "metadata": {"name": name}, "spec": spec,
        })
    };
    let fine = of("fine", json!({"class": "bronze"}));
    // the examples come a moment after the server does
    let (well, said) = soon("class bronze there", || {
        Some(plan(std::slice::from_ref(&fine))).filter(|(_, said)| !said.contains("there is no class bronze"))
    });
    assert!(well && said.contains("class bronze makes a LoadBalancer"), "{said}");
    assert!(!said.contains("connections 0"), "{said}");
    let (well, said) = plan(&[fine, of("typo", json!({"clas": "bronze"})), of("Bad_Name", json!({}))]);
    assert!(!well && said.contains("unknown field \"spec.clas\""), "{said}");
    assert!(said.contains("Bad_Name") && said.contains("is refused: "), "{said}");
    assert!(said.contains("2 of 3 would wait or be refused"), "{said}");
    // nothing was done, and what is only about to exist is no obstacle
    assert!(world.list("/apis/network.conductor.io/v1alpha1/ingressclaims").is_empty());
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let mut there = of("there", json!({"class": "bronze"}));
    there["metadata"]["namespace"] = json!("shop");
    let (well, said) = plan(&[space, there]);
    assert!(well, "{said}");
    // of a claim that waits, what it would become of
    let path = "/apis/network.conductor.io/v1alpha1/namespaces/default/ingressclaims";
    world.create(path, &of("waits", json!({"class": "none"})));
    world.until(&format!("{path}/waits"), "waiting", |c| c["status"]["phase"] == "Pending");
    let (well, said) = plan(&[of("waits", json!({"class": "bronze"}))]);
    assert!(
        well && said.contains("exists and is Pending; then nothing fits; class bronze makes a LoadBalancer"),
        "{said}"
    );
}

#[test]
fn whoever_may_not_see_a_volume_is_told_so() {
    let world = World::new();
    let key = world.data.join("jane");
    let (key, data) = (key.to_str().expect("is text"), world.data.to_str().expect("is text"));
    world.conductor(&["user", "add", "jane", "--role", "user", "-n", "default", "-o", key, "--data-dir", data]);
    let files = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "files"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "bronze", "resources": {"requests": {"storage": "1Mi"}},
        },
    });
    world.create("/api/v1/namespaces/default/persistentvolumeclaims", &files);
    let path = "/api/v1/namespaces/default/persistentvolumeclaims/files";
    world.until(path, "bound", |c| c["status"]["phase"] == "Bound");
    let (fine, said) = world.run(&["connect", "pvc/files", "--uri", "--kubeconfig", key]);
    assert!(!fine && said.contains("not yours to see") && said.contains("ask an administrator"), "{said}");
    assert!(world.conductor(&["connect", "pvc/files", "--uri"]).contains("directories"));
    // all that a claim has is below it
    let front = json!({
        "apiVersion": "network.conductor.io/v1alpha1", "kind": "IngressClaim", "metadata": {"name": "front"},
        "spec": {"class": "bronze"},
    });
    let claims = "/apis/network.conductor.io/v1alpha1/namespaces/default/ingressclaims";
    world.create(claims, &front);
    world.until(&format!("{claims}/front"), "bound", |c| c["status"]["binding"]["name"].is_string());
    soon("below the claim", || {
        let tree = world.conductor(&["tree", "ingressclaim/front"]);
        let own = ["Secret", "ConfigMap"].map(|kind| tree.contains(&format!("{kind} default/front-loadbalancer")));
        own.iter().all(|own| *own).then_some(())
    });
    // and from what is behind it, and from who uses it, one finds it
    let named = world.until(&format!("{claims}/front"), "named", |c| c["spec"]["resourceName"].is_string());
    let behind = format!("portforward/{}", named["spec"]["resourceName"].as_str().unwrap_or_default());
    let tree = world.conductor(&["tree", &behind]);
    assert!(tree.contains("IngressClaim default/front  Bound") && tree.contains("LoadBalancerClass bronze"), "{tree}");
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]},
        "metadata": {"name": "web", "annotations": {"network.conductor.io/claim": "front"}},
    });
    world.create("/api/v1/namespaces/default/services", &service);
    let tree = world.conductor(&["tree", "svc/web"]);
    assert!(tree.contains("IngressClaim default/front") && tree.contains("PortForward conductor-system/"), "{tree}");
    let (fine, said) = world.run(&["tree", "configmap/kube-root-ca.crt"]);
    assert!(!fine && said.contains("is behind no resource"), "{said}");
}

#[test]
fn what_a_resource_waits_for_is_said_to_whoever_waits_for_it() {
    let world = World::new();
    let template = json!({
        "apiVersion": "database.local.conductor.io/v1alpha1", "kind": "PostgresDatabase", "spec": {"serverSecretRef": {"name": "none"}},
    });
    let object = json!({
        "apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabase", "metadata": {"name": "one"},
        "spec": {"class": "shared", "engine": "postgres", "capacity": {"storage": "7Gi"}, "template": template},
    });
    world.create(RESOURCES, &object);
    claim(&world, "db", json!({"class": "shared"}));
    soon("said", || {
        let said = world.conductor(&["explain", "relationaldatabaseclaim/db"]);
        let why = "is Provisioning: PostgresDatabase one is not ready:";
        said.contains(why).then_some(())
    });
}
