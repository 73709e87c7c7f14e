//! `conductor classes`: what can be claimed.

use conductor_managers::inspect;

use crate::manager::Cluster;

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
        vec![["CLAIM", "CLASS", "DEFAULT", "ON DEMAND", "FREE", "TOTAL", "LARGEST FREE"].map(str::to_owned)];
    for row in rows {
        let yes = |b: bool| if b { "yes".to_owned() } else { String::new() };
        let number = |n: Option<usize>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
        table.push([
            row.claim,
            if row.class.is_empty() { "(none)".to_owned() } else { row.class },
            yes(row.default),
            if row.served { yes(row.makes) } else { "no manager".to_owned() },
            number(row.count.map(|(_, free)| free)),
            number(row.count.map(|(all, _)| all)),
            row.largest.map_or_else(String::new, |a| a.to_string()),
        ]);
    }
    let mut widths = [0; 7];
    for row in &table {
        widths.iter_mut().zip(row).for_each(|(w, cell)| *w = (*w).max(cell.len()));
    }
    for row in &table {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, w)| format!("{cell:w$}")).collect();
        println!("{}", cells.join("  ").trim_end());
    }
    Ok(())
}
