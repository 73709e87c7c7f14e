//! `list`: consistent, in pages, at a revision.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use machinery::field::{self, Path};
use machinery::status::Status;
use serde::{Deserialize, Serialize};
use store::{Entry, KeyRange, ReadError};

use crate::context::Context;
use crate::request::ListOptions;
use crate::verbs::select::Selection;

/// A list, or a page of one.
pub struct Page {
    /// The revision at which it is true.
    pub revision: u64,
    /// The entries.
    pub entries: Vec<Arc<Entry>>,
    /// Where the next page begins; empty at the end.
    pub continue_token: String,
    /// How many are left, where that is known.
    pub remaining: Option<usize>,
}

#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

/// 504 for a revision that has not happened yet.
pub fn too_large(wanted: u64, current: u64) -> Status {
    Status::timeout(format!("Timeout: Too large resource version: {wanted}, current: {current}"), 1).cause(
        "ResourceVersionTooLarge",
        "",
        "Too large resource version",
    )
}

const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new \
     list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
     Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted \
     between the time the first chunk was returned and now may show up in the list.";
/// The version of a list that goes on with what is there by then.
const INCONSISTENT: i64 = -1;

impl Context {
    /// Checks what of the options does not go together.
    fn check_list_options(&self, options: &ListOptions) -> Result<(), Status> {
        let mut errors = Vec::new();
        let path = Path::root("resourceVersionMatch");
        let wanted = options.version_match.as_str();
        if !wanted.is_empty() {
            let mut forbid = |when: bool, detail: &str| {
                if when {
                    errors.push(field::Error::forbidden(&path, detail));
                }
            };
            let (version, continued) = (options.resource_version.as_str(), !options.continue_token.is_empty());
            forbid(version.is_empty(), "resourceVersionMatch is forbidden unless resourceVersion is provided");
            forbid(continued, "resourceVersionMatch is forbidden when continue is provided");
            let any = wanted == "Exact" && version == "0";
            forbid(any, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            if !["Exact", "NotOlderThan"].contains(&wanted) {
                errors.push(field::Error::not_supported(&path, wanted, &["Exact", "NotOlderThan", ""]));
            }
        }
        if options.send_initial_events.is_some() {
            let detail = "sendInitialEvents is forbidden for list";
            errors.push(field::Error::forbidden(&Path::root("sendInitialEvents"), detail));
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid("meta.k8s.io", "ListOptions", "", &errors))
    }

    /// Whether a real server has a cache of the resource, which it has of all but events.
    fn is_cached(&self) -> bool {
        !matches!(self.resource.gk(), ("" | "events.k8s.io", "Event"))
    }

    /// The objects that a request is about.
    pub async fn page(&self, options: &ListOptions) -> Result<Page, Status> {
        self.check_list_options(options)?;
        let selection = Selection::new(&self.resource, options)?;
        let mut at = None;
        let mut start_after = None;
        let wanted = options.revision()?;
        if !options.continue_token.is_empty() {
            if wanted.is_some_and(|wanted| wanted != 0) {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            let token = read_token(&options.continue_token)?;
            at = u64::try_from(token.rv).ok();
            start_after = Some(token.start);
        } else if let Some(wanted) = wanted.filter(|wanted| *wanted != 0) {
            let current = self.server.store.revision();
            if wanted > current {
                return Err(too_large(wanted, current));
            }
            // A limit with a version but no match asks for that version exactly: what the first continue tokens did.
            let exact = options.version_match == "Exact" || (options.version_match.is_empty() && options.limit > 0);
            at = exact.then_some(wanted);
        }
        let prefix = self.resource.prefix(&self.info.namespace);
        let everything = selection.is_everything();
        // Whoever takes any version gets all of it, as from a real server's cache, and asks for no second page.
        let whole = options.resource_version == "0" && start_after.is_none() && self.is_cached();
        let limit = (options.limit > 0 && !whole).then_some(options.limit);
        let range = KeyRange {
            prefix: &prefix,
            start_after: start_after.as_deref(),
            limit: if everything { limit } else { None },
        };
        let list = match self.server.store.list(&self.resource.table, range, at) {
            Ok(list) => list,
            Err(ReadError::Future { current }) => return Err(too_large(at.unwrap_or(0), current)),
            Err(ReadError::Compacted { .. }) if !options.continue_token.is_empty() => {
                let continue_token = write_token(INCONSISTENT, start_after.as_deref().unwrap_or_default());
                return Err(Status { continue_token, ..Status::expired(TOO_OLD) });
            }
            Err(ReadError::Compacted { .. }) => {
                return Err(Status::expired("The resourceVersion for the provided list is too old."));
            }
        };
        let mut entries = self.resource.show(list.entries, false).await?;
        let mut more = list.more;
        if !everything {
            entries.retain(|entry| selection.matches(entry));
            if let Some(limit) = limit.filter(|limit| entries.len() > *limit) {
                entries.truncate(limit);
                more = true;
            }
        }
        let continue_token = match entries.last().filter(|_| more) {
            Some(last) => write_token(list.revision as i64, &last.key),
            None => String::new(),
        };
        let remaining = if everything { list.remaining.filter(|_| more) } else { None };
        Ok(Page { revision: list.revision, entries, continue_token, remaining })
    }
}

fn write_token(revision: i64, start: &str) -> String {
    let token = Token { v: "meta.k8s.io/v1".into(), rv: revision, start: start.into() };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

fn read_token(text: &str) -> Result<Token, Status> {
    let bad = |why: &str| {
        Status::bad_request(format!(
            "invalid continue token: continue key is not valid: {why}: use the token of the last page as it is"
        ))
    };
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad("not base64"))?;
    let token: Token = serde_json::from_slice(&bytes).map_err(|_| bad("not a token"))?;
    if token.v != "meta.k8s.io/v1" {
        return Err(bad("of another version"));
    }
    Ok(token)
}
