//! What objects of a custom kind cost: said by their definition, so that the server need not know what they are.

use kinds::compute::{Amounts, amounts};
use serde_json::Value;

/// The annotation of a definition that says what its objects are charged by:
/// `{"class": [".spec.class", ".status.class"], "requests": ".spec.resources.requests", "granted": ".status.granted",
/// "per": "bucketclass.example.com"}`.
pub const ANNOTATION: &str = "conductor.io/quota";

/// What objects of a kind are charged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Where an object names its class; the first that says something counts.
    class: Vec<String>,
    /// Where an object says how much of what it asks for.
    requests: String,
    /// Where an object says how much it was given, if that is more.
    granted: Option<String>,
    /// Singular and group of classes, as quotas write them: `gold.bucketclass.example.com/requests.storage`.
    pub per: String,
}

impl Charge {
    /// Reads the annotation of a definition, if it has one that can be read.
    pub fn read(crd: &Value) -> Option<Charge> {
        let text = crd["metadata"]["annotations"][ANNOTATION].as_str()?;
        let said: Value = machinery::json::parse(text.as_bytes()).ok()?.value;
        let path = |value: &Value| value.as_str().map(|path| path.trim_start_matches('.').to_owned());
        Some(Charge {
            class: said["class"].as_array().into_iter().flatten().filter_map(path).collect(),
            requests: path(&said["requests"])?,
            granted: path(&said["granted"]),
            per: said["per"].as_str()?.to_owned(),
        })
    }

    /// The class of an object.
    pub fn class<'o>(&self, object: &'o Value) -> Option<&'o str> {
        self.class.iter().find_map(|path| {
            let value = path.split('.').fold(object, |at, part| &at[part]);
            value.as_str().filter(|class| !class.is_empty())
        })
    }

    /// What an object asks for, or was given where that is more.
    pub fn requests(&self, object: &Value) -> Amounts {
        let mut asked = amounts(object, &self.requests);
        for (name, given) in self.granted.iter().flat_map(|path| amounts(object, path)) {
            if asked.get(&name).is_none_or(|asked| *asked < given) {
                asked.insert(name, given);
            }
        }
        asked
    }

    /// Fills in what an object does not ask for itself.
    pub fn fill(&self, object: &mut Value, defaults: &serde_json::Map<String, Value>) {
        if defaults.is_empty() {
            return;
        }
        let mut at = object;
        for part in self.requests.split('.') {
            if !at[part].is_object() {
                at[part] = serde_json::json!({});
            }
            at = &mut at[part];
        }
        for (name, amount) in defaults {
            if at[name].is_null() {
                at[name] = amount.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_definition_says_what_its_objects_cost() {
        let said = json!({"class": [".spec.class", ".status.class"], "requests": ".spec.resources.requests", "granted": ".status.granted", "per": "c.g"});
        let crd = json!({"metadata": {"annotations": {ANNOTATION: said.to_string()}}});
        let charge = Charge::read(&crd).unwrap();
        let mut object = json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {"class": "gold"}});
        assert_eq!(charge.class(&object), Some("gold"));
        object["spec"]["class"] = "silver".into();
        assert_eq!(charge.class(&object), Some("silver"));
        assert_eq!(charge.requests(&object)["storage"].to_string(), "1Gi");
        for (granted, charged) in [("500Mi", "1Gi"), ("2Gi", "2Gi")] {
            object["status"]["granted"] = json!({"storage": granted});
            assert_eq!(charge.requests(&object)["storage"].to_string(), charged);
        }
        let mut empty = json!({});
        charge.fill(&mut empty, json!({"storage": "2Gi"}).as_object().unwrap());
        assert_eq!(empty["spec"]["resources"]["requests"]["storage"], "2Gi");
        for text in ["", "x", "{}"] {
            assert_eq!(Charge::read(&json!({"metadata": {"annotations": {ANNOTATION: text}}})), None);
        }
    }
}
