//! What can be claimed, and how much of it is free.

use conductor_claims::amount::Amount;
use serde_json::Value;

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
    /// Resources, and those of them that are free; `None`: not ours to see.
    pub count: Option<(usize, usize)>,
    /// The largest free amount of the first capacity.
    pub largest: Option<Amount>,
}

/// Every class of every type.
pub async fn classes(api: &Api) -> Result<Vec<ClassRow>, Failure> {
    let mut rows = Vec::new();
    for kind in kinds(api).await? {
        let claim = kind.claim().1.to_owned();
        let snapshot = match Snapshot::read(api, kind.clone()).await {
            Ok(snapshot) => snapshot,
            Err(failure) if failure.code == 403 => {
                rows.extend(unseen(api, &kind.class().0, kind.class().1, &claim).await?);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let mut names: Vec<String> = snapshot.index.profiles().map(|p| p.name.to_string()).collect();
        for offer in snapshot.index.offers() {
            let class = offer.shape.class.as_deref().unwrap_or_default();
            if !names.iter().any(|n| n == class) {
                names.push(class.to_owned());
            }
        }
        names.sort();
        for class in names {
            let of = |o: &&conductor_claims::views::Offer| o.shape.class.as_deref().unwrap_or_default() == class;
            let free = || snapshot.index.offers().filter(of).filter(|o| o.taken().is_none());
            let profile = snapshot.index.profiles().find(|p| *p.name == *class);
            rows.push(ClassRow {
                claim: claim.clone(),
                default: !class.is_empty() && snapshot.index.default_class() == Some(&class),
                makes: profile.is_some_and(|p| p.provisions && !p.deleting),
                served: profile.is_none_or(|p| p.served),
                count: Some((snapshot.index.offers().filter(of).count(), free().count())),
                largest: free().map(|o| o.free(0)).max(),
                class,
            });
        }
    }
    Ok(rows)
}

/// Classes of a type whose resources are not ours to see.
async fn unseen(api: &Api, api_version: &str, kind: &str, claim: &str) -> Result<Vec<ClassRow>, Failure> {
    let list = match api.list(api_version, kind, "").await {
        Ok(list) => list,
        Err(failure) if matches!(failure.code, 403 | 404) => return Ok(Vec::new()),
        Err(failure) => return Err(failure),
    };
    let row = |class: &Value| ClassRow {
        claim: claim.to_owned(),
        class: class["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        default: false,
        makes: !conductor_claims::extract::class_fields(class)["template"].is_null(),
        served: true,
        count: None,
        largest: None,
    };
    Ok(list.iter().map(row).collect())
}
