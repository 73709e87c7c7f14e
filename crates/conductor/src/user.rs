//! `conductor user`: people and what they may do.

use std::path::PathBuf;

use anyhow::{Context, bail};
use conductor_apiserver::pki::{Pki, write_secret};
use conductor_managers::{Api, parties};
use serde_json::{Value, json};

/// Give people access.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Give a person a role and a kubeconfig
    Add(Add),
}

/// Give a person a role and a kubeconfig with a certificate of their own.
///
/// The certificate is signed with the key in the data directory and valid for a year. Roles can be given to the same person in
/// several namespaces; what was given before stays. Whoever has the kubeconfig is that person: it is written for its owner only.
#[derive(clap::Args)]
#[command(
    after_help = "Roles:\n  infrastructure-admin  implementations and credentials, in conductor-system\n  cluster-admin         types, classes, managers, resources\n  user                  claims and what uses them, in a namespace (-n)\n\nExamples:\n  conductor user add jane --role user -n shop\n  kubectl --kubeconfig jane.kubeconfig get relationaldatabaseclasses"
)]
struct Add {
    /// The person's name
    name: String,
    /// What they may do
    #[arg(long, value_enum)]
    role: Role,
    /// Where: users have their role in a namespace, which is made if it does not exist
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    /// Where to write the kubeconfig; `-` for standard output [default: NAME.kubeconfig]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    data_dir: crate::up::DataDir,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Role {
    InfrastructureAdmin,
    ClusterAdmin,
    User,
}

/// Does what is asked.
pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Add(add) => add.run().await,
    }
}

impl Add {
    async fn run(self) -> anyhow::Result<()> {
        let usual = |c: char| c.is_ascii_alphanumeric() || "-_.@+:".contains(c);
        if self.name.is_empty() || self.name.starts_with("system:") || !self.name.chars().all(usual) {
            bail!(
                "{:?} cannot be a person's name: it has letters, digits and -_.@+: only, such as jane@example.com, and does not begin with system:",
                self.name
            );
        }
        match (self.role, &self.namespace) {
            (Role::User, None) => bail!("a user has their role in a namespace: say which with -n"),
            (Role::InfrastructureAdmin | Role::ClusterAdmin, Some(_)) => {
                bail!("this role is not given in a namespace: leave -n out")
            }
            _ => {}
        }
        let data_dir = self.data_dir.path()?;
        let admin = data_dir.join("kubeconfig");
        let kubeconfig = kube::config::Kubeconfig::read_from(&admin).with_context(|| {
            format!(
                "cannot read {}: no server has run with this data directory: name the one that has with --data-dir",
                admin.display()
            )
        })?;
        let cluster = kubeconfig.clusters.first().and_then(|own| own.cluster.as_ref());
        let url =
            cluster.and_then(|own| own.server.clone()).context("the administrator's kubeconfig names no server")?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        let api = Api::new(kube::Client::try_from(config)?);
        for object in self.objects() {
            api.apply(&object).await.with_context(|| {
                format!("cannot apply {} {}: does conductor up run?", object["kind"], object["metadata"]["name"])
            })?;
        }
        let pki = Pki::open(&data_dir.join("pki"))?;
        let mut text = pki.kubeconfig(&url, &self.name, None)?;
        if let Some(namespace) = &self.namespace {
            text = text.replace(
                "    cluster: conductor\n    user",
                &format!("    cluster: conductor\n    namespace: {namespace}\n    user"),
            );
        }
        let path = self.output.unwrap_or_else(|| PathBuf::from(format!("{}.kubeconfig", self.name)));
        if path.as_os_str() == "-" {
            crate::out::write(text.as_bytes())?;
        } else {
            write_secret(&path, text.as_bytes())?;
            eprintln!("{} is the kubeconfig of {}", path.display(), self.name);
        }
        Ok(())
    }

    /// The namespace and the bindings.
    fn objects(&self) -> Vec<Value> {
        const GROUP: &str = "rbac.authorization.k8s.io";
        let subject = json!([{"apiGroup": GROUP, "kind": "User", "name": self.name}]);
        let bind = |role: &str, namespace: Option<&str>| {
            let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
            let mut meta = json!({"name": format!("{role}:{}", self.name)});
            if let Some(namespace) = namespace {
                meta["namespace"] = namespace.into();
            }
            json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": meta,
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}, "subjects": subject,
            })
        };
        match (self.role, &self.namespace) {
            (Role::InfrastructureAdmin, _) => vec![
                bind(parties::INFRASTRUCTURE_ADMIN, Some("conductor-system")),
                bind(parties::INFRASTRUCTURE_VIEW, None),
            ],
            (Role::User, Some(namespace)) => vec![
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
                bind(parties::USER, Some(namespace)),
            ],
            _ => vec![bind(parties::CLUSTER_ADMIN, None)],
        }
    }
}
