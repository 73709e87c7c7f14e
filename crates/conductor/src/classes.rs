//! `conductor classes`: what can be claimed.

use conductor_managers::inspect;

use crate::manager::Cluster;
use crate::out::say;

/// Stands for what the right to see is missing for.
const UNSEEN: &str = "?";

/// Show what can be claimed: every class of every type, whether it makes more on demand, and how much is free.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: Cluster,
}

/// Prints it.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let (api, _) = args.cluster.api().await?;
    let rows = inspect::classes(&api).await?;
    let mut table =
        vec![["CLAIM", "CLASS", "DEFAULT", "POLICY", "FREE", "TOTAL", "LARGEST FREE", "ON DEMAND"].map(str::to_owned)];
    for row in rows {
        let yes = |b: bool| if b { "yes".to_owned() } else { String::new() };
        let unseen = || UNSEEN.to_owned();
        let number = |n: Option<usize>| n.map_or_else(unseen, |n| n.to_string());
        table.push([
            row.claim,
            if row.class.is_empty() { "(none)".to_owned() } else { row.class },
            yes(row.default),
            row.policy.unwrap_or_default().to_owned(),
            number(row.count.map(|(_, free)| free)),
            number(row.count.map(|(all, _)| all)),
            match row.largest {
                None => unseen(),
                Some(largest) => largest.map(|a| a.to_string()).unwrap_or_default(),
            },
            // last, for what is lacking is long
            match row.lacks {
                _ if !row.served => "no manager".to_owned(),
                Some(lacks) => format!("lacks: {lacks}"),
                None => yes(row.makes),
            },
        ]);
    }
    let mut widths = [0; 8];
    for row in &table {
        widths.iter_mut().zip(row).for_each(|(w, cell)| *w = (*w).max(cell.len()));
    }
    for row in &table {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, w)| format!("{cell:w$}")).collect();
        say(cells.join("  ").trim_end())?;
    }
    if table.iter().flatten().any(|cell| cell == UNSEEN) {
        say("\n?: not yours to see")?;
    }
    Ok(())
}
