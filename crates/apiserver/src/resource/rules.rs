//! What becomes of an object before it is stored: defaults, what its strategy prepares, and what is wrong with it.

use machinery::field;
use machinery::schema::{self, Said};
use machinery::status::Status;
use serde_json::Value;

use super::{CRD, Decoded, Nature, Resource};

impl Resource {
    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        match &self.nature {
            Nature::BuiltIn(_) => self.internally(object, |object| {
                schema::apply_openapi_defaults(object, self.internal_schema());
                kinds::defaults::apply(self.internal_group(), &self.kind, object);
            }),
            Nature::Custom(custom) => custom.default(object),
        }
    }

    /// Fills in the defaults that are the time of a request.
    pub fn date(&self, object: &mut Value, now: &str) {
        if !self.is_custom() {
            kinds::defaults::date(&self.group, &self.kind, object, now);
        }
    }

    /// Fills in the defaults of what a request has changed, before it is stored.
    pub fn default_part(&self, subresource: &str, object: &mut Value) {
        match &self.nature {
            Nature::BuiltIn(_) => self.default(object),
            Nature::Custom(custom) => custom.default_part(subresource, object),
        }
    }

    /// Fills in the defaults of an object that was applied: what is null in it stays, to be refused.
    pub fn fill(&self, object: &mut Value) {
        match &self.nature {
            Nature::BuiltIn(_) => self.default(object),
            Nature::Custom(custom) => custom.fill(object),
        }
    }

    /// Brings a merged object into the form that reading it would give: merging leaves empty fields behind.
    pub fn settle(&self, object: Value) -> Result<Decoded, Status> {
        match &self.nature {
            Nature::BuiltIn(_) => self.decode(object),
            Nature::Custom(custom) => {
                Ok(Decoded { object: custom.settle(object)?, strict: Vec::new(), said: Vec::new() })
            }
        }
    }

    /// Counts what was sent empty where there is nothing as a change, for the kinds that do.
    pub fn count_empty(&self, subresource: &str, said: &[Said], new: &mut Value, old: &Value) {
        if subresource.is_empty() && !self.is_custom() {
            let empty = said.iter().filter(|said| said.value.is_array() || said.value.is_object());
            kinds::strategy::count_empty(&self.group, &self.kind, empty.map(|said| &*said.place), new, old);
        }
    }

    /// What is wrong with lists and maps that were sent empty: they are no part of the `object` any more.
    pub fn validate_empty(&self, subresource: &str, object: &Value, said: &[Said]) -> field::Errors {
        let empty = said.iter().filter(|said| said.value.is_array() || said.value.is_object());
        // of what else is sent for a resize nothing is written
        let written = |place: &&str| subresource != "resize" || place.starts_with("/spec/resources/");
        let places: Vec<&str> = empty.map(|said| &*said.place).filter(written).collect();
        if places.is_empty() || self.is_custom() || !matches!(subresource, "" | "resize" | "ephemeralcontainers") {
            return field::Errors::new();
        }
        kinds::validate::empty(&self.group, &self.kind, object, &places)
    }

    /// Whether fields that settling changed make an update of what is otherwise as before.
    pub fn count_unsettled(&self, subresource: &str, fields: &[String], new: &mut Value, old: &Value) -> bool {
        match &self.nature {
            Nature::BuiltIn(_) => false,
            Nature::Custom(custom) => custom.count_unsettled(subresource, fields, new, old),
        }
    }

    /// Makes an object ready to be created: nothing a client may not set is set.
    pub fn prepare_create(&self, object: &mut Value) {
        match &self.nature {
            Nature::BuiltIn(_) => self.internally(object, |object| {
                kinds::strategy::prepare_create(self.internal_group(), &self.kind, object);
            }),
            Nature::Custom(custom) => custom.prepare_create(object),
        }
    }

    /// Makes an object ready to replace `old`, or a part of it.
    pub fn prepare_update(&self, subresource: &str, new: &mut Value, old: &Value, now: &str) {
        match (&self.nature, subresource) {
            // Where a Pod is put is no change of what it should be: its generation stays, its status says so.
            (Nature::BuiltIn(_), "binding") => {}
            (Nature::BuiltIn(_), subresource) => {
                let (group, old) = (self.internal_group(), &*self.internal(old));
                self.internally(new, |new| match subresource {
                    "" | "scale" => kinds::strategy::prepare_update(group, &self.kind, new, old),
                    _ => kinds::strategy::prepare_subresource_update(group, &self.kind, subresource, new, old, now),
                });
            }
            (Nature::Custom(custom), "status") => custom.prepare_status_update(new, old),
            (Nature::Custom(custom), _) => custom.prepare_update(new, old),
        }
    }

    /// What is wrong with a new object.
    pub fn validate_create(&self, object: &Value) -> field::Errors {
        match &self.nature {
            Nature::BuiltIn(_) => {
                let object = &*self.internal(object);
                // Two kinds are first asked for the little that was ever asked of them.
                let late = matches!(self.gk(), ("", "Event") | ("policy", "PodDisruptionBudget"));
                let mut errors = if late { field::Errors::new() } else { self.validate_meta(object) };
                if self.gk() == CRD {
                    errors.extend(crate::custom::check::create(object));
                } else {
                    errors.extend(kinds::validate::create(&self.group, &self.kind, object));
                    if crate::policies::check::applies(&self.group) {
                        errors.extend(crate::policies::check::check(&self.kind, object));
                    }
                    if &*self.group == "resource.k8s.io" {
                        errors.extend(crate::plugins::devices::check(&self.kind, object));
                    }
                    if self.gk() == ("certificates.k8s.io", "CertificateSigningRequest") {
                        errors.extend(crate::plugins::certificates::check(object));
                    }
                }
                if errors.is_empty() {
                    // Whatever a kind allows, a name is part of a path.
                    let (meta, path) = (&object["metadata"], field::Path::root("metadata"));
                    let rule = machinery::names::name_is_path_segment;
                    errors = machinery::meta::validate_object_meta(meta, self.namespaced, rule, &path);
                }
                errors
            }
            Nature::Custom(custom) => {
                let mut errors = self.validate_meta(object);
                errors.extend(custom.validate("", object, None, &mut Vec::new()));
                errors
            }
        }
    }

    /// What is wrong with a changed object; `warnings` are about what was wrong before and is let pass.
    pub fn validate_update(
        &self,
        subresource: &str,
        new: &Value,
        old: &Value,
        warnings: &mut Vec<String>,
    ) -> field::Errors {
        let path = field::Path::root("metadata");
        let (new, old) = (&*self.internal(new), &*self.internal(old));
        let mut errors = machinery::meta::validate_object_meta_update(&new["metadata"], &old["metadata"], &path);
        match &self.nature {
            Nature::BuiltIn(_) if self.gk() == CRD => {
                if subresource.is_empty() {
                    errors.extend(crate::custom::check::update(new, old));
                }
            }
            Nature::BuiltIn(_) if subresource == "status" => {
                errors.extend(kinds::validate::status_update(&self.group, &self.kind, new, old));
                if self.gk() == ("certificates.k8s.io", "CertificateSigningRequest") {
                    errors.extend(crate::plugins::certificates::check_issued(new, old));
                }
            }
            Nature::BuiltIn(_) if subresource.is_empty() || subresource == "scale" => {
                errors.extend(kinds::validate::update(&self.group, &self.kind, new, old));
                let selects = match self.gk() {
                    ("resource.k8s.io", "DeviceClass") => new["spec"] != old["spec"],
                    gk => gk == ("resource.k8s.io", "ResourceClaimTemplate"),
                };
                if selects {
                    errors.extend(crate::plugins::devices::check(&self.kind, new));
                }
                if crate::policies::check::applies(&self.group)
                    && (new["spec"] != old["spec"] || new["webhooks"] != old["webhooks"])
                {
                    errors.extend(crate::policies::check::check(&self.kind, new));
                }
            }
            Nature::BuiltIn(_) => {
                errors.extend(kinds::validate::subresource_update(&self.group, &self.kind, subresource, new, old));
            }
            Nature::Custom(custom) => errors.extend(custom.validate(subresource, new, Some(old), warnings)),
        }
        errors
    }

    fn validate_meta(&self, object: &Value) -> field::Errors {
        let rule = match &self.nature {
            Nature::BuiltIn(_) => kinds::validate::name_rule(&self.group, &self.kind),
            Nature::Custom(_) => machinery::names::name_is_subdomain,
        };
        let path = field::Path::root("metadata");
        let mut errors = machinery::meta::validate_object_meta(&object["metadata"], self.namespaced, rule, &path);
        if !self.is_custom() {
            errors.extend(kinds::validate::finalizers(&self.group, &self.kind, object));
        }
        errors
    }
}
