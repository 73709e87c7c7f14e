//! Which objects a list, watch or collection delete is about.

use std::borrow::Cow;
use std::sync::Arc;

use machinery::selector::{FieldSelector, Selector};
use machinery::status::Status;
use store::Entry;

use crate::request::ListOptions;
use crate::resource::Resource;

/// Labels and selectable fields of one version of an object, read once for all who ask.
#[derive(Debug, Default)]
pub struct Facts {
    labels: Vec<(String, String)>,
    fields: Vec<(String, String)>,
}

/// A selection by labels and fields.
#[derive(Clone)]
pub struct Selection {
    labels: Option<Selector>,
    fields: Option<FieldSelector>,
    resource: Arc<Resource>,
}

impl Selection {
    /// Reads the selectors of a request; unknown fields are refused.
    pub fn new(resource: &Arc<Resource>, options: &ListOptions) -> Result<Selection, Status> {
        let labels = match options.label_selector.as_str() {
            "" => None,
            text => Some(Selector::parse(text).map_err(|error| Status::bad_request(error.to_string()))?),
        };
        let fields = match options.field_selector.as_str() {
            "" => None,
            text => Some(FieldSelector::parse(text).map_err(|error| Status::bad_request(error.to_string()))?),
        };
        if let Some(fields) = &fields {
            for name in fields.requirements().iter().map(|requirement| requirement.field.as_str()) {
                if !resource.selects(name) {
                    return Err(Status::bad_request(resource.unknown_field(name)));
                }
            }
        }
        Ok(Selection { labels, fields, resource: resource.clone() })
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }

    /// Whether a version of an object is selected.
    pub fn matches(&self, entry: &Entry) -> bool {
        if self.is_everything() {
            return true;
        }
        let made;
        let remembered = if self.remembers() { entry.memo.get::<Facts>() } else { None };
        let facts = match remembered {
            Some(facts) => facts,
            None => {
                made = self.facts(entry);
                &made
            }
        };
        self.matches_facts(facts)
    }

    /// Like [`Self::matches`], remembering what was read: for versions that many watchers will ask about.
    pub fn matches_shared(&self, entry: &Entry) -> bool {
        if self.is_everything() {
            return true;
        }
        if !self.remembers() {
            return self.matches_facts(&self.facts(entry));
        }
        match entry.memo.get_or_init(|| self.facts(entry)) {
            Some(facts) => self.matches_facts(facts),
            None => self.matches_facts(&self.facts(entry)),
        }
    }

    /// What is remembered of an entry is as its storage form shows it; forms with other fields read it each time.
    fn remembers(&self) -> bool {
        !self.resource.is_custom() && self.resource.twin().is_none() || self.fields.is_none()
    }

    fn facts(&self, entry: &Entry) -> Facts {
        let Ok(object) = self.resource.read(entry) else { return Facts::default() };
        let labels = object["metadata"]["labels"]
            .as_object()
            .map(|labels| labels.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect());
        Facts { labels: labels.unwrap_or_default(), fields: self.resource.fields(&object) }
    }

    fn matches_facts(&self, facts: &Facts) -> bool {
        let label = |name: &str| facts.labels.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
        let field = |name: &str| facts.fields.iter().find(|(k, _)| k == name).map(|(_, v)| Cow::Borrowed(v.as_str()));
        self.labels.as_ref().is_none_or(|labels| labels.matches_with(label))
            && self.fields.as_ref().is_none_or(|fields| fields.matches(field))
    }
}
