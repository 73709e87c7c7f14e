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
    let objects = if args.types { install::type_definitions() } else { install::objects() };
    let mut objects = objects.map_err(|error| anyhow::anyhow!("a built-in file is broken: {error}"))?;
    if let Some(image) = &args.image {
        objects.extend(deployment(image));
    }
    for object in objects {
        say(&format!("---\n{}", serde_saphyr::to_string(&object)?.trim_end()))?;
    }
    Ok(())
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
