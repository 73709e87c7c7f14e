//! `conductor tree`: what belongs together.

use conductor_managers::inspect;

use crate::explain::Output;
use crate::manager::Cluster;
use crate::out::{say, write};

/// Show a claim or a resource with its consumers, class and implementation, and how they are.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  conductor tree pvc/data -n shop\n  conductor tree relationaldatabase/database-445"
)]
pub struct Args {
    /// The claim or resource: KIND/NAME, with the kind as kubectl takes it
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
