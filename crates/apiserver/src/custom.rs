//! Custom resources: the rules of a CustomResourceDefinition.

use machinery::field;
use machinery::schema::{Id, Schema, Types};
use machinery::status::Status;
use serde_json::{Value, json};

use crate::resource::Decoded;

/// One served version of a custom resource.
#[derive(Debug)]
pub struct Custom {
    types: Types,
    root: Id,
}

impl Custom {
    /// The schema.
    pub fn schema(&self) -> Schema<'_> {
        self.types.schema(self.root)
    }

    /// Reads an object: unknown fields are pruned and reported.
    pub fn decode(&self, object: Value) -> Result<Decoded, Status> {
        Ok(Decoded { object, strict: Vec::new() })
    }

    /// Fills in defaults.
    pub fn default(&self, _object: &mut Value) {}

    /// See [`crate::resource::Resource::prepare_create`].
    pub fn prepare_create(&self, _object: &mut Value) {}

    /// See [`crate::resource::Resource::prepare_update`].
    pub fn prepare_update(&self, _new: &mut Value, _old: &Value) {}

    /// See [`crate::resource::Resource::prepare_update`].
    pub fn prepare_status_update(&self, _new: &mut Value, _old: &Value) {}

    /// What is wrong with an object.
    pub fn validate(&self, _new: &Value, _old: Option<&Value>) -> field::Errors {
        Vec::new()
    }

    /// The selectable fields.
    pub fn fields(&self, _object: &Value) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Whether a field is selectable.
    pub fn selects(&self, _field: &str) -> bool {
        false
    }

    /// Whether stored objects are shown otherwise than they are stored.
    pub fn changes_on_read(&self) -> bool {
        false
    }

    /// A stored object as this version shows it.
    pub fn read(&self, object: Value) -> Value {
        object
    }

    /// To the other versions of the resource.
    pub fn converter(&self) -> &dyn machinery::apply::Converter {
        &machinery::apply::OneVersion
    }

    /// Where replicas are wanted, replicas are counted, and the selector stands, as JSON pointers.
    pub fn scale(&self) -> Option<(String, String, String)> {
        None
    }

    /// A table row.
    pub fn cells(&self, object: &Value, _now: i64) -> Vec<Value> {
        vec![object["metadata"]["name"].clone()]
    }

    /// The columns of tables.
    pub fn columns(&self) -> Value {
        json!([{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}])
    }
}
