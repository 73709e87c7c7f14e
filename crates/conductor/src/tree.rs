//! `conductor tree`: what belongs together.

use conductor_managers::inspect;

use crate::explain::Output;
use crate::manager::Cluster;
use crate::out::{say, write};

/// Show what belongs together, and how it is: a claim or a resource, what uses claims (a Pod, Ingress or Service), or what is behind a resource.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  conductor tree pvc/data -n shop\n  conductor tree relationaldatabase/database-445\n  conductor tree pod/app -n shop\n  conductor tree postgresinstance/database-445"
)]
pub struct Args {
    /// Where to begin: KIND/NAME, with the kind as kubectl takes it
    object: String,
    /// Its namespace [default: the context's]
    #[arg(long, short)]
    namespace: Option<String>,
    /// How the answer is written
    #[arg(long, short, value_enum, default_value = "text")]
    output: Output,
    #[command(flatten)]
    cluster: Cluster,
}

/// Prints it.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let (api, namespace) = args.cluster.api().await?;
    let tree = inspect::tree(&api, &args.object, args.namespace.as_deref().unwrap_or(&namespace)).await?;
    match args.output {
        Output::Text => write(tree.text().as_bytes()),
        Output::Json => say(&serde_json::to_string_pretty(&tree.json())?),
    }
}
