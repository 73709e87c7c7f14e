//! `conductor install`: what an API server needs, as YAML.

use conductor_managers::install;

use crate::out::say;

/// Print what a cluster needs before `conductor manager` can work, as YAML for kubectl apply.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  conductor install | kubectl apply --server-side -f -\n  conductor install --types | less"
)]
pub struct Args {
    /// Print the definitions that the built-in types make, instead
    #[arg(long)]
    types: bool,
}

/// Prints it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let objects = if args.types { install::type_definitions() } else { install::objects() };
    let objects = objects.map_err(|error| anyhow::anyhow!("a built-in file is broken: {error}"))?;
    for object in objects {
        say(&format!("---\n{}", serde_saphyr::to_string(&object)?.trim_end()))?;
    }
    Ok(())
}
