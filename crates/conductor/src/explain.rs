//! `conductor explain`: why a claim is bound to what it is, or why it waits.

use conductor_managers::inspect;

use crate::manager::Cluster;
use crate::out::{say, write};

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Say why a claim is bound to what it is, or why it waits: every candidate, what refused it, and the smallest change of the
/// claim that would bind.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  conductor explain pvc/data -n shop\n  conductor explain relationaldatabaseclaim/db -o json"
)]
pub struct Args {
    /// The claim: KIND/NAME, with the kind as kubectl takes it
    claim: String,
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
    let answer = inspect::explain(&api, &args.claim, args.namespace.as_deref().unwrap_or(&namespace)).await?;
    match args.output {
        Output::Text => write(answer.text.as_bytes()),
        Output::Json => say(&serde_json::to_string_pretty(&answer.json)?),
    }
}
