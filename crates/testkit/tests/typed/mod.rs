//! What people type, and what kubectl says then, whoever answers it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use conductor_testkit::{Cluster, Namespace, program, skip, unique};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

/// How long controllers may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// kubectl for one namespace of one cluster.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    namespace: Namespace,
    dir: tempfile::TempDir,
}

impl Kubectl {
    async fn new(test: &str) -> Option<(Kubectl, Cluster)> {
        let Some(program) = program("CONDUCTOR_KUBECTL", "kubectl") else {
            skip(test, "there is no kubectl: set CONDUCTOR_KUBECTL or have it on the path");
            return None;
        };
        let cluster = super::cluster(test).await?;
        let kubeconfig = cluster.kubeconfig().expect("programs find it").to_owned();
        let namespace = cluster.namespace().await;
        let dir = tempfile::tempdir().unwrap();
        Some((Kubectl { program, kubeconfig, namespace, dir }, cluster))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.dir.path())
            .args(["--namespace", self.namespace.name()])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs it: exit code, output, errors.
    async fn run(&self, arguments: &[&str], input: &str) -> (i32, String, String) {
        self.finish(self.command(arguments), arguments, input).await
    }

    async fn finish(&self, mut command: Command, arguments: &[&str], input: &str) -> (i32, String, String) {
        let mut child = command.spawn().expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("its input is ours");
        stdin.write_all(input.as_bytes()).await.expect("kubectl reads");
        drop(stdin);
        let done = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output()).await;
        let output = done.unwrap_or_else(|_| panic!("kubectl {arguments:?} did not end")).expect("kubectl ends");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("kubectl writes UTF-8");
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    /// What it prints when it must succeed.
    #[track_caller]
    fn ok<'a>(&'a self, arguments: &'a [&'a str]) -> impl Future<Output = String> + 'a {
        self.ok_with(arguments, "")
    }

    async fn ok_with(&self, arguments: &[&str], input: &str) -> String {
        let (code, out, errors) = self.run(arguments, input).await;
        assert_eq!(code, 0, "kubectl {arguments:?}: {errors}{out}");
        out
    }

    /// What it complains about when it must fail.
    async fn fails(&self, arguments: &[&str], input: &str) -> String {
        let (code, out, errors) = self.run(arguments, input).await;
        assert_ne!(code, 0, "kubectl {arguments:?}: {out}");
        errors
    }

    /// What it prints when it must succeed and say this before long: the controllers of a real Kubernetes take a moment.
    async fn soon(&self, arguments: &[&str], parts: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let (code, out, errors) = self.run(arguments, "").await;
            let said = parts.iter().all(|part| out.contains(part));
            if code == 0 && said {
                return out;
            }
            assert!(begun.elapsed() < PATIENCE, "kubectl {arguments:?}: not {parts:?} but {errors}{out}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().into()
    }
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  colour: blue\n";
const VOLUME: &str = "apiVersion: v1
kind: PersistentVolume
metadata: {name: disk, labels: {tier: gold}}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /tmp/disk}
  storageClassName: slow
";
const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: c, image: nginx}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn it_finds_its_way_around() {
    let Some((kubectl, cluster)) = Kubectl::new("it_finds_its_way_around").await else { return };
    // a cluster that somebody gave may be of another
    let version = if cluster.server().is_some() { "Server Version: v1.36" } else { "Server Version: v1." };
    has(&kubectl.ok(&["version"]).await, &["Client Version: ", version]);
    let resources = kubectl.ok(&["api-resources", "--no-headers"]).await;
    has(&resources, &["configmaps", "persistentvolumes", "customresourcedefinitions", "deployments", "leases"]);
    assert!(resources.lines().count() > 55, "{resources}");
    let wide = kubectl.ok(&["api-resources", "-o", "wide", "--api-group=apps"]).await;
    has(&wide, &["deployments", "create,delete,deletecollection,get,list,patch,update,watch", "all"]);
    has(&kubectl.ok(&["api-versions"]).await, &["v1\n", "apps/v1\n", "storage.k8s.io/v1\n"]);
    let explained = kubectl.ok(&["explain", "pv.spec", "--recursive"]).await;
    has(
        &explained,
        &["KIND:       PersistentVolume", "VERSION:    v1", "capacity", "claimRef", "resourceVersion", "<[]string>"],
    );
    has(
        &kubectl.ok(&["explain", "deployment.spec.replicas"]).await,
        &["GROUP:      apps", "FIELD: replicas <integer>"],
    );
    has(&kubectl.fails(&["explain", "pv.nonsense"], "").await, &["field \"nonsense\" does not exist"]);
    let who = kubectl.ok(&["auth", "whoami"]).await;
    has(&who, &["Username", "Groups", "system:authenticated"]);
    if cluster.server().is_some() {
        has(&who, &["kubernetes-admin", "system:masters"]);
    }
    assert_eq!(kubectl.ok(&["auth", "can-i", "delete", "nodes"]).await.trim(), "yes");
    has(&kubectl.ok(&["get", "--raw", "/readyz?verbose"]).await, &["[+]", "readyz check passed"]);
    let raw: Value = serde_json::from_str(&kubectl.ok(&["get", "--raw", "/api/v1/namespaces/default"]).await).unwrap();
    assert_eq!(raw["metadata"]["name"], "default");
    has(&kubectl.ok(&["cluster-info"]).await, &["is running at"]);
    has(&kubectl.ok(&["get", "all"]).await, &[""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_creates_reads_changes_and_deletes() {
    let Some((kubectl, _cluster)) = Kubectl::new("it_creates_reads_changes_and_deletes").await else { return };
    // create, and what it says of what is there
    assert_eq!(kubectl.ok_with(&["create", "-f", "-"], MAP).await, "configmap/settings created\n");
    has(
        &kubectl.fails(&["create", "-f", "-"], MAP).await,
        &["AlreadyExists", "configmaps \"settings\" already exists"],
    );
    let created =
        kubectl.ok(&["create", "configmap", "other", "--from-literal=a=b", "--dry-run=server", "-o", "name"]).await;
    assert_eq!(created, "configmap/other\n");
    has(&kubectl.fails(&["get", "configmap", "other"], "").await, &["NotFound"]);
    let strange = MAP.replace("data:", "date:");
    has(&kubectl.fails(&["create", "-f", "-"], &strange).await, &["strict decoding error: unknown field \"date\""]);

    // get in all its forms
    kubectl.soon(&["get", "configmaps"], &["NAME", "DATA", "AGE", "settings", "kube-root-ca.crt"]).await;
    assert_eq!(kubectl.ok(&["get", "configmap", "settings", "-o", "name"]).await, "configmap/settings\n");
    assert_eq!(kubectl.ok(&["get", "configmap", "settings", "-o", "jsonpath={.data.colour}"]).await, "blue");
    has(&kubectl.ok(&["get", "configmap", "settings", "-o", "yaml"]).await, &["  colour: blue\n", "kind: ConfigMap\n"]);
    let json: Value = serde_json::from_str(&kubectl.ok(&["get", "cm", "settings", "-o", "json"]).await).unwrap();
    assert_eq!(json["data"]["colour"], "blue");
    let columns = ["get", "cm", "settings", "-o", "custom-columns=N:.metadata.name,C:.data.colour"];
    has(&kubectl.ok(&columns).await, &["N          C\n", "settings   blue\n"]);
    has(&kubectl.ok(&["get", "cm,secrets,sa"]).await, &["configmap/settings", "serviceaccount/default"]);
    let chosen = kubectl.ok(&["get", "cm", "--field-selector=metadata.name=settings", "-o", "name"]).await;
    assert_eq!(chosen, "configmap/settings\n");

    // label, annotate, the three patches
    assert_eq!(kubectl.ok(&["label", "cm", "settings", "tier=gold"]).await, "configmap/settings labeled\n");
    has(&kubectl.fails(&["label", "cm", "settings", "tier=iron"], "").await, &["already has a value (gold)"]);
    assert_eq!(kubectl.ok(&["annotate", "cm", "settings", "note=hi"]).await, "configmap/settings annotated\n");
    for (kind, patch) in [
        ("merge", r#"{"data": {"a": "merged"}}"#),
        ("strategic", r#"{"data": {"b": "strategic"}}"#),
        ("json", r#"[{"op": "add", "path": "/data/c", "value": "json"}]"#),
    ] {
        let out = kubectl.ok(&["patch", "cm", "settings", "--type", kind, "-p", patch]).await;
        assert_eq!(out, "configmap/settings patched\n", "{kind}");
    }
    let again = kubectl.ok(&["patch", "cm", "settings", "--type", "merge", "-p", r#"{"data": {"a": "merged"}}"#]).await;
    assert_eq!(again, "configmap/settings patched (no change)\n");
    let data = kubectl
        .ok(&["get", "cm", "settings", "-o", "jsonpath={.data.a} {.data.b} {.data.c} {.metadata.labels.tier}"])
        .await;
    assert_eq!(data, "merged strategic json gold");
    has(&kubectl.ok(&["get", "cm", "-l", "tier=gold", "--show-labels", "-L", "tier"]).await, &["tier=gold", "TIER"]);

    // replace, delete
    assert_eq!(kubectl.ok_with(&["replace", "-f", "-"], MAP).await, "configmap/settings replaced\n");
    assert_eq!(kubectl.ok(&["get", "cm", "settings", "-o", "jsonpath={.data}"]).await, r#"{"colour":"blue"}"#);
    has(&kubectl.fails(&["replace", "-f", "-"], &MAP.replace("settings", "none")).await, &["NotFound"]);
    assert_eq!(kubectl.ok_with(&["replace", "--force", "-f", "-"], MAP).await.lines().count(), 2);
    has(&kubectl.ok(&["delete", "cm", "settings"]).await, &["configmap \"settings\" deleted"]);
    assert_eq!(kubectl.ok(&["delete", "cm", "settings", "--ignore-not-found"]).await, "");
    has(&kubectl.fails(&["delete", "cm", "settings"], "").await, &["NotFound"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_applies_diffs_and_edits() {
    let Some((kubectl, _cluster)) = Kubectl::new("it_applies_diffs_and_edits").await else { return };
    let file = kubectl.file("map.yaml", MAP);
    for server_side in [false, true] {
        let side = format!("--server-side={server_side}");
        let (created, changed, unchanged) = match server_side {
            false => ("created", "configured", "unchanged"),
            true => ("serverside-applied", "serverside-applied", "serverside-applied"),
        };
        std::fs::write(&file, MAP).unwrap();
        let apply = ["apply", &side, "-f", &file];
        assert_eq!(kubectl.ok(&apply).await, format!("configmap/settings {created}\n"));
        assert_eq!(kubectl.ok(&apply).await, format!("configmap/settings {unchanged}\n"));
        std::fs::write(&file, MAP.replace("blue", "red").replace("\ndata:\n", "\ndata:\n  more: x\n")).unwrap();
        let (code, diff, errors) = kubectl.run(&["diff", &side, "-f", &file], "").await;
        assert_eq!(code, 1, "{errors}");
        has(&diff, &["-  colour: blue", "+  colour: red", "+  more: x"]);
        assert_eq!(kubectl.ok(&apply).await, format!("configmap/settings {changed}\n"));
        assert_eq!(kubectl.run(&["diff", &side, "-f", &file], "").await.0, 0);
        std::fs::write(&file, MAP).unwrap();
        kubectl.ok(&apply).await;
        assert_eq!(kubectl.ok(&["get", "cm", "settings", "-o", "jsonpath={.data}"]).await, r#"{"colour":"blue"}"#);
        kubectl.ok(&["delete", "cm", "settings"]).await;
    }
    // Somebody else's field is not taken without force.
    kubectl.ok(&["apply", "--server-side", "--field-manager=a", "-f", &file]).await;
    std::fs::write(&file, MAP.replace("blue", "red")).unwrap();
    let conflict = kubectl.fails(&["apply", "--server-side", "--field-manager=b", "-f", &file], "").await;
    has(&conflict, &["conflict with \"a\": .data.colour", "--force-conflicts"]);
    kubectl.ok(&["apply", "--server-side", "--field-manager=b", "--force-conflicts", "-f", &file]).await;
    has(
        &kubectl.ok(&["get", "cm", "settings", "-o", "yaml", "--show-managed-fields"]).await,
        &["manager: b", "f:colour"],
    );

    // An edit with an editor that is a script.
    let editor = kubectl.file("editor", "#!/bin/sh\nsed -i 's/colour: red/colour: green/' \"$1\"\n");
    make_executable(Path::new(&editor));
    let arguments = ["edit", "cm", "settings"];
    let mut command = kubectl.command(&arguments);
    command.env("EDITOR", &editor).env("KUBE_EDITOR", &editor);
    let (code, out, errors) = kubectl.finish(command, &arguments, "").await;
    assert_eq!((code, out.as_str()), (0, "configmap/settings edited\n"), "{errors}");
    assert_eq!(kubectl.ok(&["get", "cm", "settings", "-o", "jsonpath={.data.colour}"]).await, "green");
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn it_watches_and_waits() {
    let Some((kubectl, _cluster)) = Kubectl::new("it_watches_and_waits").await else { return };
    let mut command = kubectl.command(&["get", "pods", "-w", "-l", "app=web", "--output-watch-events"]);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    kubectl.ok_with(&["create", "-f", "-"], POD).await;
    let patch = r#"{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}"#;
    let waiting = kubectl.command(&["wait", "pod/web", "--for=condition=Ready", "--timeout=30s"]).spawn().unwrap();
    kubectl.ok(&["patch", "pod", "web", "--subresource=status", "--type=merge", "-p", patch]).await;
    has(&String::from_utf8_lossy(&waiting.wait_with_output().await.unwrap().stdout), &["pod/web condition met"]);
    has(&kubectl.ok(&["wait", "pod/web", "--for=jsonpath={.status.phase}=Running"]).await, &["condition met"]);
    has(&kubectl.fails(&["wait", "pod/web", "--for=condition=Nonsense", "--timeout=1s"], "").await, &["timed out"]);
    kubectl.ok(&["delete", "pod", "web", "--now"]).await;
    has(&kubectl.ok(&["wait", "pod/web", "--for=delete", "--timeout=30s"]).await, &[""]);
    let mut seen = Vec::new();
    while !seen.iter().any(|line: &String| line.starts_with("DELETED")) {
        let line = tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await.expect("an event in time");
        seen.push(line.unwrap().expect("the watch goes on"));
    }
    has(&seen.join("\n"), &["EVENT", "ADDED", "web", "Pending", "MODIFIED", "Running"]);
    child.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn it_describes_scales_and_makes_tokens() {
    let Some((kubectl, _cluster)) = Kubectl::new("it_describes_scales_and_makes_tokens").await else { return };
    // it is in no namespace
    let disk = unique("disk");
    let volume = VOLUME.replace("name: disk", &format!("name: {disk}"));
    kubectl.ok_with(&["create", "-f", "-"], &volume).await;
    has(
        &kubectl.ok(&["get", "pv", "-o", "wide"]).await,
        &["CAPACITY", "ACCESS MODES", "RECLAIM POLICY", "1Gi", "RWO", "Retain", "slow", "VOLUMEMODE", "Filesystem"],
    );
    has(
        &kubectl.ok(&["describe", "pv", &disk]).await,
        &["Name:", &disk, "Labels:", "tier=gold", "StorageClass:", "slow", "Capacity:", "1Gi", "HostPath"],
    );
    kubectl.ok(&["delete", "pv", &disk]).await;
    kubectl.ok_with(&["create", "-f", "-"], POD).await;
    has(
        &kubectl.ok(&["get", "pods", "-o", "wide"]).await,
        &["READY", "STATUS", "RESTARTS", "NODE", "web", "0/1", "Pending"],
    );
    has(&kubectl.ok(&["describe", "pod", "web"]).await, &["Image:", "nginx", "Status:", "Pending"]);
    has(&kubectl.ok(&["describe", "namespace", kubectl.namespace.name()]).await, &["Status:", "Active"]);
    kubectl.soon(&["describe", "cm", "kube-root-ca.crt"], &["BEGIN CERTIFICATE"]).await;

    // scale, whether or not anybody acts on it
    kubectl.ok(&["create", "deployment", "front", "--image=nginx"]).await;
    assert_eq!(kubectl.ok(&["scale", "deployment/front", "--replicas=3"]).await, "deployment.apps/front scaled\n");
    assert_eq!(kubectl.ok(&["get", "deployment", "front", "-o", "jsonpath={.spec.replicas}"]).await, "3");
    has(
        &kubectl.fails(&["scale", "deployment/front", "--replicas=1", "--current-replicas=2"], "").await,
        &["Expected replicas to be 2"],
    );
    kubectl.soon(&["get", "deployments"], &["READY", "UP-TO-DATE", "AVAILABLE", "front", "0/3"]).await;
    assert_eq!(
        kubectl.ok(&["set", "image", "deployment/front", "nginx=nginx:2"]).await,
        "deployment.apps/front image updated\n"
    );
    assert_eq!(kubectl.ok(&["rollout", "pause", "deployment/front"]).await, "deployment.apps/front paused\n");
    has(&kubectl.ok(&["expose", "deployment", "front", "--port=80"]).await, &["service/front exposed"]);
    has(&kubectl.ok(&["get", "service", "front"]).await, &["CLUSTER-IP", "80/TCP"]);

    // service accounts and their tokens
    kubectl.ok(&["create", "serviceaccount", "robot"]).await;
    let token = kubectl.ok(&["create", "token", "robot", "--duration=1h"]).await;
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
    let who = kubectl.ok(&["auth", "whoami", "--as", "jane", "--as-group", "dev"]).await;
    has(&who, &["jane", "dev"]);
    kubectl.ok(&["create", "role", "reader", "--verb=get", "--resource=pods"]).await;
    kubectl.ok(&["create", "rolebinding", "readers", "--role=reader", "--serviceaccount=default:robot"]).await;
    has(&kubectl.ok(&["describe", "role", "reader"]).await, &["pods", "[get]"]);
    kubectl.ok(&["create", "secret", "generic", "word", "--from-literal=p=w"]).await;
    has(&kubectl.ok(&["get", "secret", "word"]).await, &["TYPE", "Opaque", "1"]);

    // events
    let event = format!(
        "apiVersion: v1\nkind: Event\nmetadata: {{name: e1}}\ninvolvedObject: {{apiVersion: v1, kind: Pod, name: web, namespace: {}}}\nreason: Tested\nmessage: seen by kubectl\ntype: Normal\nlastTimestamp: \"2026-01-01T00:00:00Z\"\n",
        kubectl.namespace.name()
    );
    kubectl.ok_with(&["create", "-f", "-"], &event).await;
    has(&kubectl.ok(&["events"]).await, &["LAST SEEN", "Tested", "Pod/web", "seen by kubectl"]);
    has(&kubectl.ok(&["events", "--for", "pod/web"]).await, &["Tested"]);
    has(&kubectl.ok(&["get", "events"]).await, &["REASON", "Tested"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_do_what_and_how_much() {
    let Some((kubectl, _cluster)) = Kubectl::new("who_may_do_what_and_how_much").await else { return };
    let jane = |arguments: &[&'static str]| [&["--as=jane"], arguments].concat();
    let can = async |verb: &'static str, what: &'static str| {
        let (code, said, _) = kubectl.run(&jane(&["auth", "can-i", verb, what]), "").await;
        (code, said.trim().to_owned())
    };

    // roles: by hand, and reconciled from a file
    assert_eq!(can("get", "configmaps").await, (1, "no".to_owned()));
    kubectl.ok(&["create", "role", "reader", "--verb=get,list", "--resource=configmaps"]).await;
    kubectl.ok(&["create", "rolebinding", "jane", "--role=reader", "--user=jane"]).await;
    kubectl.soon(&jane(&["auth", "can-i", "get", "configmaps"]), &["yes"]).await;
    assert_eq!(can("create", "configmaps").await, (1, "no".to_owned()));
    let listed = kubectl.ok(&jane(&["auth", "can-i", "--list"])).await;
    has(&listed, &["configmaps", "[get list]", "selfsubjectaccessreviews.authorization.k8s.io", "[/healthz]"]);
    // It wants the namespace in the file.
    let wider = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: reader, namespace: {}}}\n\
         rules: [{{apiGroups: [''], resources: [configmaps], verbs: [create]}}]\n",
        kubectl.namespace.name()
    );
    let said = kubectl.ok_with(&["auth", "reconcile", "-f", "-"], &wider).await;
    has(&said, &["role.rbac.authorization.k8s.io/reader reconciled"]);
    kubectl.soon(&jane(&["auth", "can-i", "create", "configmaps"]), &["yes"]).await;
    assert_eq!(can("list", "configmaps").await, (0, "yes".to_owned()), "what was there stays");
    let refused = kubectl.fails(&jane(&["get", "secrets"]), "").await;
    has(&refused, &["(Forbidden)", "User \"jane\" cannot list resource \"secrets\""]);

    // quotas
    kubectl.ok(&["create", "quota", "small", "--hard=count/secrets=1,services=0"]).await;
    // a real one takes nothing until it has counted
    kubectl.soon(&["create", "secret", "generic", "one"], &["created"]).await;
    let said = kubectl.ok(&["describe", "quota", "small"]).await;
    has(&said, &["Name:", "small", "count/secrets", "services", "Used  Hard"]);
    let row = said.lines().find(|line| line.starts_with("count/secrets")).expect("a row");
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["count/secrets", "1", "1"]);
    let refused = kubectl.fails(&["create", "secret", "generic", "two"], "").await;
    has(
        &refused,
        &["exceeded quota: small", "requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1"],
    );
    kubectl.ok(&["delete", "secret", "one"]).await;
    kubectl.soon(&["create", "secret", "generic", "two"], &["created"]).await;
}
