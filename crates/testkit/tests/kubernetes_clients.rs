//! Other people's clients, on a real Kubernetes and on ours: a client-go informer, a leader election, a controller of
//! controller-runtime, and Helm. Each says what it saw, and must see the same on both.

use std::path::{Path, PathBuf};
use std::time::Duration;

use conductor_testkit::{Cluster, KUBECONFIG, Namespace, program, skip};
use tokio::process::Command;

/// Longer than any of them takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Both clusters and the program, or why the test does nothing.
async fn both(test: &str, variable: &str, name: &str) -> Option<(PathBuf, [Cluster; 2])> {
    let Some(program) = program(variable, name) else {
        skip(test, &format!("there is no {name}: cargo xtask tools {name}"));
        return None;
    };
    let Some(real) = Cluster::real().await else {
        skip(test, &format!("{KUBECONFIG} names no cluster"));
        return None;
    };
    Some((program, [real, Cluster::served().await]))
}

/// Runs a program to its end: what it printed.
async fn output(mut command: Command) -> String {
    command.kill_on_drop(true);
    let done = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = done.unwrap_or_else(|_| panic!("{command:?} did not end")).expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("it writes UTF-8")
}

/// The same program on both clusters sees the same.
async fn sees_the_same(name: &str) {
    let Some((program, clusters)) = both(name, "CONDUCTOR_CLIENTS", "clients").await else { return };
    let mut seen = Vec::new();
    for cluster in &clusters {
        let namespace = cluster.namespace().await;
        let mut command = Command::new(&program);
        command.args([name, namespace.name()]).env("KUBECONFIG", cluster.kubeconfig().expect("it is served"));
        seen.push(output(command).await.replace(namespace.name(), "NAMESPACE"));
    }
    assert!(!seen[0].is_empty(), "{name} says what it saw");
    assert_eq!(seen[0], seen[1], "{name}: real, then ours");
    println!("{name}: {} lines, the same on both", seen[0].lines().count());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_informer_of_client_go() {
    sees_the_same("informer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_webhooks_of_controller_runtime() {
    sees_the_same("webhook").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_election_of_client_go() {
    sees_the_same("election").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_of_controller_runtime() {
    sees_the_same("controller").await;
}

/// Helm on one cluster.
struct Helm<'a> {
    program: &'a Path,
    kubeconfig: &'a Path,
    namespace: &'a Namespace,
    home: &'a Path,
}

impl Helm<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(["--namespace", self.namespace.name()]).args(arguments);
        command.env("KUBECONFIG", self.kubeconfig);
        // Its caches and settings stay in the test's directory.
        for variable in ["HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, self.home);
        }
        command
    }

    async fn run(&self, arguments: &[&str]) -> String {
        output(self.command(arguments)).await
    }
}

/// A chart with a kind of its own, objects of several groups, a hook and a value to change.
fn write_chart(dir: &Path, group: &str) {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: shop\nversion: 0.1.0\nappVersion: '1'\n".to_owned()),
        ("values.yaml", "greeting: hello\nreplicas: 1\n".to_owned()),
        (
            "crds/orders.yaml",
            format!(
                "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: orders.{group}}}\n\
                 spec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: orders, singular: order, kind: Order}}\n  \
                 versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        \
                 type: object\n        properties:\n          spec: {{type: object, properties: {{size: {{type: integer}}}}}}\n"
            ),
        ),
        (
            "templates/config.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-config\n\
             data: {greeting: {{ .Values.greeting }}, kube: '{{ .Capabilities.KubeVersion.Major }}'}\n"
                .to_owned(),
        ),
        (
            "templates/order.yaml",
            format!(
                "apiVersion: {group}/v1\nkind: Order\nmetadata:\n  name: {{{{ .Release.Name }}}}\n\
                 spec: {{size: {{{{ .Values.replicas }}}}}}\n"
            ),
        ),
        (
            "templates/web.yaml",
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Release.Name }}-web\n\
             spec: {selector: {app: web}, ports: [{port: 80}]}\n---\n\
             {{ if gt (int .Values.replicas) 1 }}apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Release.Name }}-extra\n\
             stringData: {a: b}\n{{ end }}"
                .to_owned(),
        ),
        (
            "templates/hook.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-hook-{{ .Release.Revision }}\n  \
             annotations: {helm.sh/hook: 'pre-install,pre-upgrade'}\n"
                .to_owned(),
        ),
    ];
    for (name, text) in files {
        let path = dir.join("shop").join(name);
        std::fs::create_dir_all(path.parent().expect("below the chart")).expect("made");
        std::fs::write(path, text).expect("written");
    }
}

/// What is in the namespace, as kubectl lists it.
async fn objects(helm: &Helm<'_>, kubectl: &Path, group: &str) -> String {
    let mut command = Command::new(kubectl);
    let kinds = format!("configmaps,secrets,services,orders.{group}");
    command
        .args(["--namespace", helm.namespace.name(), "get", &kinds, "--ignore-not-found", "--output"])
        .arg("jsonpath={range .items[*]}{.kind}/{.metadata.name} {.data.greeting}{.spec.size}{\"\\n\"}{end}")
        .env("KUBECONFIG", helm.kubeconfig)
        .env("HOME", helm.home);
    output(command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_upgrades_rolls_back_and_uninstalls() {
    let test = "helm";
    let Some((helm, clusters)) = both(test, "CONDUCTOR_HELM", "helm").await else { return };
    let Some(kubectl) = program("CONDUCTOR_KUBECTL", "kubectl") else {
        return skip(test, "there is no kubectl: cargo xtask tools kubectl");
    };
    let mut seen = Vec::new();
    for cluster in &clusters {
        let namespace = cluster.namespace().await;
        let home = tempfile::tempdir().expect("a directory");
        let group = format!("{}.example.com", namespace.name());
        write_chart(home.path(), &group);
        let kubeconfig = cluster.kubeconfig().expect("it is served");
        let helm = Helm { program: &helm, kubeconfig, namespace: &namespace, home: home.path() };
        let chart = home.path().join("shop").display().to_string();
        let mut steps = String::new();
        let mut note = |what: &str, text: String| steps += &format!("== {what}\n{text}");
        helm.run(&["install", "mine", &chart, "--wait=false"]).await;
        note("installed", objects(&helm, &kubectl, &group).await);
        helm.run(&["upgrade", "mine", &chart, "--set", "greeting=welcome,replicas=2", "--wait=false"]).await;
        note("upgraded", objects(&helm, &kubectl, &group).await);
        let refused =
            helm.command(&["upgrade", "mine", &chart, "--set", "replicas=many"]).output().await.expect("it runs");
        note("refused", format!("{}\n", refused.status.success()));
        helm.run(&["rollback", "mine", "1", "--wait=false"]).await;
        note("rolled back", objects(&helm, &kubectl, &group).await);
        let history = helm.run(&["history", "mine", "--output", "json"]).await;
        let history: serde_json::Value = serde_json::from_str(&history).expect("JSON");
        let history = history.as_array().expect("a list").iter();
        let history: Vec<String> =
            history.map(|entry| format!("{} {}\n", entry["revision"], entry["status"])).collect();
        note("history", history.concat());
        note("values", helm.run(&["get", "values", "mine", "--all"]).await);
        helm.run(&["uninstall", "mine", "--wait"]).await;
        note("uninstalled", objects(&helm, &kubectl, &group).await);
        let mut command = Command::new(&kubectl);
        command
            .args(["delete", "crd", &format!("orders.{group}")])
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", home.path());
        output(command).await;
        seen.push(steps.replace(namespace.name(), "NAMESPACE"));
    }
    assert!(seen[0].contains("mine-config hello"), "the chart's objects are seen: {}", seen[0]);
    assert_eq!(seen[0], seen[1], "real, then ours");
    println!("helm: {} lines, the same on both", seen[0].lines().count());
}
