//! Which requests a policy or webhook is asked about.

use std::sync::Arc;

use machinery::selector::Selector;
use machinery::status::Status;
use serde_json::{Map, Value};

use crate::admission::{Attributes, Operation};
use crate::resource::{Nature, Resource};

/// `matchConstraints`, `matchResources`, or the same fields of a webhook.
pub struct Criteria {
    namespaces: Result<Selector, String>,
    objects: Result<Selector, String>,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// `matchPolicy: Equivalent`: a rule for another version of the same resource counts.
    equivalent: bool,
}

/// One of `resourceRules`.
struct Rule {
    operations: Vec<Box<str>>,
    groups: Vec<Box<str>>,
    versions: Vec<Box<str>>,
    resources: Vec<Box<str>>,
    names: Vec<Box<str>>,
    scope: Scope,
}

#[derive(Clone, Copy, PartialEq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

/// Kinds that no policy and no webhook is asked about: a wrong one could not be repaired otherwise.
pub fn exempt(resource: &Resource) -> bool {
    &*resource.group == "admissionregistration.k8s.io"
        && matches!(
            &*resource.kind,
            "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        )
}

/// Kinds that policies are asked about, and no webhook.
pub fn exempt_from_webhooks(resource: &Resource) -> bool {
    exempt(resource)
        || &*resource.group == "admissionregistration.k8s.io"
            && matches!(&*resource.kind, "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration")
}

fn strings(list: &Value) -> Vec<Box<str>> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
}

fn selector(value: &Value) -> Result<Selector, String> {
    if value.is_null() { Ok(Selector::everything()) } else { Selector::from_object(value) }
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        Rule {
            operations: strings(&rule["operations"]),
            groups: strings(&rule["apiGroups"]),
            versions: strings(&rule["apiVersions"]),
            resources: strings(&rule["resources"]),
            names: strings(&rule["resourceNames"]),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
        }
    }

    /// Whether it is about resources of this name, or of any: the same thing has the same name in all its versions.
    fn names(&self, plural: &str) -> bool {
        self.plurals().any(|own| own == "*" || own == plural)
    }

    fn plurals(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().map(|own| own.split_once('/').map_or(&**own, |(own, _)| own))
    }

    fn matches(&self, attributes: &Attributes<'_>, resource: &Resource) -> bool {
        let any = |list: &[Box<str>], wanted: &str| list.iter().any(|own| &**own == "*" || &**own == wanted);
        let in_namespace = resource.gk() != ("", "Namespace") && !attributes.admission_namespace().is_empty();
        let scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => !in_namespace,
            Scope::Namespaced => in_namespace,
        };
        scope
            && any(&self.operations, attributes.operation.as_str())
            && any(&self.groups, &resource.group)
            && any(&self.versions, &resource.version)
            && self.resources.iter().any(|own| {
                let (plural, part) = own.split_once('/').unwrap_or((own, ""));
                (plural == "*" || plural == &*resource.plural) && (part == "*" || part == attributes.subresource)
            })
            && (self.names.is_empty() || self.names.iter().any(|name| **name == *attributes.asked_name()))
    }
}

impl Criteria {
    /// Reads `MatchResources`, or a webhook, whose rules have another name.
    pub fn read(value: &Value) -> Criteria {
        let rules = |name: &str| value[name].as_array().into_iter().flatten().map(Rule::read).collect::<Vec<_>>();
        let own = if value.get("resourceRules").is_some() { "resourceRules" } else { "rules" };
        Criteria {
            namespaces: selector(&value["namespaceSelector"]),
            objects: selector(&value["objectSelector"]),
            rules: rules(own),
            excluded: rules("excludeResourceRules"),
            equivalent: value["matchPolicy"] != "Exact",
        }
    }

    /// The names of the resources that the rules are about; `*` for all.
    pub fn plurals(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().flat_map(Rule::plurals)
    }

    /// The resource, in the version that is asked for, if the criteria hold; no rules at all are met by everything.
    pub fn matches(&self, attributes: &Attributes<'_>, optional: bool) -> Result<Option<Arc<Resource>>, Status> {
        if self.find(&self.excluded, attributes).is_some() {
            return Ok(None);
        }
        let matched = if self.rules.is_empty() && optional {
            attributes.resource.clone()
        } else {
            match self.find(&self.rules, attributes) {
                Some(resource) => resource,
                None => return Ok(None),
            }
        };
        let objects = self.objects.as_ref().map_err(Status::internal)?;
        let labelled =
            |object: &Value| object["metadata"]["labels"].as_object().is_some_and(|own| objects.matches(own));
        let bare = |object: &Value| !object["metadata"]["labels"].is_object() && objects.matches(&Map::new());
        let meets = |object: &Value| object.is_object() && (labelled(object) || bare(object));
        if !objects.is_empty() && !meets(&attributes.object) && !meets(attributes.old) {
            return Ok(None);
        }
        Ok(self.in_namespace(attributes)?.then_some(matched))
    }

    fn in_namespace(&self, attributes: &Attributes<'_>) -> Result<bool, Status> {
        let namespaces = self.namespaces.as_ref().map_err(Status::internal)?;
        let name = attributes.admission_namespace();
        let own = attributes.resource.gk() == ("", "Namespace");
        if namespaces.is_empty() || (name.is_empty() && !own) {
            return Ok(true);
        }
        let written = matches!(attributes.operation, Operation::Create | Operation::Update);
        let nothing = Map::new();
        if own && attributes.subresource.is_empty() && written {
            let labels = attributes.object["metadata"]["labels"].as_object();
            return Ok(namespaces.matches(labels.unwrap_or(&nothing)));
        }
        let namespace = attributes.namespace_object(name)?;
        Ok(namespaces.matches(namespace["metadata"]["labels"].as_object().unwrap_or(&nothing)))
    }

    fn find(&self, rules: &[Rule], attributes: &Attributes<'_>) -> Option<Arc<Resource>> {
        if rules.iter().any(|rule| rule.matches(attributes, attributes.resource)) {
            return Some(attributes.resource.clone());
        }
        if !self.equivalent || !rules.iter().any(|rule| rule.names(&attributes.resource.plural)) {
            return None;
        }
        let catalog = attributes.cx.server.catalog();
        let alike = catalog.of_table(&attributes.resource.table);
        let same = |other: &&Arc<Resource>| !Arc::ptr_eq(other, attributes.resource);
        rules.iter().find_map(|rule| alike.iter().filter(same).find(|other| rule.matches(attributes, other)).cloned())
    }
}

/// An object of the request, in the version that a policy or webhook asks for.
pub async fn converted(object: &Value, from: &Resource, to: &Resource) -> Result<Value, Status> {
    let mut object = object.clone();
    if object.is_object() && !std::ptr::eq(from, to) {
        object = match (&from.nature, &to.nature) {
            (Nature::Custom(from), Nature::Custom(to)) => from.convert(object, to).await?,
            _ => match (from.twin(), to.twin()) {
                (Some(twin), _) => twin.to_stored(object),
                (_, Some(twin)) => twin.from_stored(object),
                _ => object,
            },
        };
        object["apiVersion"] = to.api_version().into();
        object["kind"] = (*to.kind).into();
    }
    Ok(object)
}
