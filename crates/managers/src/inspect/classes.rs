//! What can be claimed, and how much of it is free.

use conductor_claims::amount::Amount;
use conductor_claims::views::{Offer, Reclaim};

use super::{Snapshot, kinds};
use crate::api::{Api, Failure};

/// One class of one type.
pub struct ClassRow {
    /// The claim's kind, what a user would write.
    pub claim: String,
    /// The class; empty: resources without one.
    pub class: String,
    /// Whether it stands in for claims that name none.
    pub default: bool,
    /// Whether it makes more on demand.
    pub makes: bool,
    /// Whether a manager serves it.
    pub served: bool,
    /// What keeps it from making more.
    pub lacks: Option<String>,
    /// What becomes of its resources when they come back; `None`: it is no class.
    pub policy: Option<&'static str>,
    /// Resources, and those of them that are free; `None`: not ours to see.
    pub count: Option<(usize, usize)>,
    /// The largest free amount of the first capacity, if any is free; `None`: not ours to see.
    pub largest: Option<Option<Amount>>,
}

/// Every class of every type.
pub async fn classes(api: &Api) -> Result<Vec<ClassRow>, Failure> {
    let mut rows = Vec::new();
    for kind in kinds(api).await? {
        let snapshot = Snapshot::read(api, kind, "").await?;
        let mut names: Vec<String> = snapshot.index.profiles().map(|p| p.name.to_string()).collect();
        for offer in snapshot.index.offers() {
            let class = offer.shape.class.as_deref().unwrap_or_default();
            if !names.iter().any(|n| n == class) {
                names.push(class.to_owned());
            }
        }
        names.sort();
        rows.extend(names.into_iter().map(|class| row(&snapshot, class)));
    }
    Ok(rows)
}

fn row(snapshot: &Snapshot, class: String) -> ClassRow {
    let of = |o: &&Offer| o.shape.class.as_deref().unwrap_or_default() == class;
    let free = || snapshot.index.offers().filter(of).filter(|o| o.taken().is_none());
    let profile = snapshot.index.profiles().find(|p| *p.name == *class);
    let counted = |key: &str| usize::try_from(snapshot.standing.get(&class)?[key].as_u64()?).ok();
    ClassRow {
        claim: snapshot.kind.claim().1.to_owned(),
        default: !class.is_empty() && snapshot.index.default_class() == Some(&class),
        makes: profile.is_some_and(|p| p.provisions && !p.deleting),
        served: profile.is_none_or(|p| p.served),
        lacks: snapshot.lacks(&class).map(str::to_owned),
        policy: profile.map(|p| p.reclaim.unwrap_or(Reclaim::Delete).name()),
        count: match snapshot.seen {
            true => Some((snapshot.index.offers().filter(of).count(), free().count())),
            // how many there are is for everybody to know
            false => counted("instances").zip(counted("free")),
        },
        largest: snapshot.seen.then(|| free().map(|o| o.free(0)).max()),
        class,
    }
}
