//! `conductor install`: what an API server needs, as YAML.

use conductor_claims::lifecycle::SYSTEM_NAMESPACE;
use conductor_managers::install;
use serde_json::{Value, json};

use crate::out::say;
use crate::webhook;

/// Print what a cluster needs before `conductor manager` can work, as YAML for kubectl apply.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  conductor install | kubectl apply --server-side -f -\n  conductor install --image registry.example/conductor:1 | kubectl apply --server-side -f -\n  conductor install --types | less"
)]
pub struct Args {
    /// Print the definitions that the built-in types make, instead
    #[arg(long)]
    types: bool,
    /// Print a Deployment of the managers as well, from this image, with their webhook; see Dockerfile
    #[arg(long, value_name = "IMAGE", conflicts_with = "types", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    image: Option<String>,
}

/// Prints it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    for document in documents(args)? {
        say(&document)?;
    }
    Ok(())
}

/// What is printed, one YAML document for each object.
fn documents(args: &Args) -> anyhow::Result<Vec<String>> {
    let objects = if args.types { install::type_definitions() } else { install::objects() };
    let mut objects = objects.map_err(|error| anyhow::anyhow!("a built-in file is broken: {error}"))?;
    if let Some(image) = &args.image {
        objects.extend(deployment(image));
    }
    let document = |object: &Value| Ok(format!("---\n{}", serde_saphyr::to_string(object)?.trim_end()));
    objects.iter().map(document).collect()
}

/// The managers as a Deployment, of which one leads, and the Service by which the API server reaches their webhook.
fn deployment(image: &str) -> [Value; 2] {
    const PORT: u16 = 9443;
    let name = "conductor-managers";
    let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "conductor"});
    let selector = json!({"app.kubernetes.io/name": name});
    let container = json!({
        "name": "managers",
        "image": image,
        "args": ["manager", "--no-install", "--webhook", format!("0.0.0.0:{PORT}")],
        "ports": [{"name": "webhook", "containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": "webhook"}},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
    });
    let meta = |name: &str| json!({"name": name, "namespace": SYSTEM_NAMESPACE, "labels": labels});
    [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta(webhook::NAME),
            "spec": {"selector": selector, "ports": [{"name": "webhook", "port": 443, "targetPort": "webhook"}]},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta(name),
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": selector},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "serviceAccountName": install::ACCOUNT,
                        "securityContext": {
                            "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "containers": [container],
                    },
                },
            },
        }),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use conductor_claims::types::{ResourceType, builtin_types, crds, read_yaml};

    use super::*;

    /// What is printed, read again.
    fn printed(types: bool, image: Option<&str>) -> Vec<Value> {
        let documents = documents(&Args { types, image: image.map(str::to_owned) }).expect("documents");
        let read = |text: &String| read_yaml(text.strip_prefix("---\n").expect("a document of its own")).expect("YAML");
        documents.iter().map(read).collect()
    }

    #[test]
    fn types_are_the_definitions_that_managers_make_of_them() {
        let mut expected = Vec::new();
        for object in builtin_types().expect("types") {
            expected.extend(crds(&ResourceType::parse(&object).expect("a type")));
        }
        let all = printed(true, None);
        assert_eq!(all, expected, "to the letter, through YAML");
        assert!(all.iter().all(|crd| crd["kind"] == "CustomResourceDefinition"));
        let names: BTreeSet<&str> = all.iter().filter_map(|crd| crd["metadata"]["name"].as_str()).collect();
        assert_eq!(names.len(), all.len(), "each of them once");
        for name in ["relationaldatabases", "relationaldatabaseclaims", "relationaldatabaseclasses"] {
            assert!(names.contains(format!("{name}.storage.conductor.io").as_str()), "{names:?}");
        }
    }

    #[test]
    fn without_types_there_is_what_makes_them_and_no_more() {
        let all = printed(false, None);
        let kinds = |all: &[Value]| {
            all.iter().map(|o| o["kind"].as_str().unwrap_or_default().to_owned()).collect::<BTreeSet<_>>()
        };
        assert_eq!(all.iter().filter(|o| o["kind"] == "ResourceType").count(), builtin_types().expect("types").len());
        let database = |o: &Value| o["metadata"]["name"] == "relationaldatabases.storage.conductor.io";
        assert!(!all.iter().any(|o| database(o) && o["kind"] == "CustomResourceDefinition"));
        assert!(!kinds(&all).contains("Deployment"));
        let with = printed(false, Some("registry.example/conductor:1"));
        assert_eq!(with[..all.len()], all[..]);
        assert_eq!(kinds(&with[all.len()..]), BTreeSet::from(["Deployment".to_owned(), "Service".to_owned()]));
    }
}
