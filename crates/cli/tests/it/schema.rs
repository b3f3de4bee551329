//! Checks JSON against a schema of `docs/schemas`, with the keywords that these use.

use serde_json::{Map, Value};

use crate::support::root;

/// A JSON schema.
pub(crate) struct Schema(Value);

impl Schema {
    /// The schema of a page, by the name of its file.
    pub(crate) fn read(page: &str) -> Self {
        let path = root().join("docs/schemas").join(format!("{page}.v1.json"));
        Self(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    }

    /// The first place where a value is not what the schema says.
    pub(crate) fn fault(&self, value: &Value) -> Option<String> {
        self.check(&self.0, value, "$").err()
    }

    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let Value::Object(keywords) = schema else {
            let is_allowed = schema.as_bool().unwrap();
            return if is_allowed { Ok(()) } else { Err(format!("{at} is not allowed")) };
        };
        for (keyword, wanted) in keywords {
            let holds = match keyword.as_str() {
                "$schema" | "title" | "description" | "format" | "$defs" => true,
                // Each entry is checked below.
                "properties" | "patternProperties" | "additionalProperties" => continue,
                "type" => has_type(value, wanted),
                "const" => value == wanted,
                "minimum" => value.as_f64().is_none_or(|n| n >= wanted.as_f64().unwrap()),
                "$ref" => self.check(self.definition(wanted), value, at).map(|()| true)?,
                "oneOf" => self.n_fitting(wanted, value, at) == 1,
                "anyOf" => self.n_fitting(wanted, value, at) > 0,
                "items" => self.check_items(wanted, value, at).map(|()| true)?,
                "required" => has_keys(value, wanted),
                "propertyNames" => self.check_names(wanted, value, at).map(|()| true)?,
                unknown => panic!("{unknown} is a keyword that is not checked"),
            };
            if !holds {
                return Err(format!("{at} is {value}, but {keyword} is {wanted}"));
            }
        }
        self.check_entries(keywords, value, at)
    }

    fn definition(&self, reference: &Value) -> &Value {
        let name = reference.as_str().and_then(|text| text.strip_prefix("#/$defs/")).unwrap();
        &self.0["$defs"][name]
    }

    fn n_fitting(&self, schemas: &Value, value: &Value, at: &str) -> usize {
        let fits = |schema: &&Value| self.check(schema, value, at).is_ok();
        schemas.as_array().unwrap().iter().filter(fits).count()
    }

    fn check_items(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let mut items = value.as_array().into_iter().flatten().enumerate();
        items.try_for_each(|(n, item)| self.check(schema, item, &format!("{at}[{n}]")))
    }

    fn check_names(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let mut names = value.as_object().into_iter().flat_map(Map::keys);
        names.try_for_each(|name| self.check(schema, &name.as_str().into(), at))
    }

    /// Checks each entry of an object by its key: as a property, else by a pattern, else as others.
    fn check_entries(
        &self,
        keywords: &Map<String, Value>,
        value: &Value,
        at: &str,
    ) -> Result<(), String> {
        for (key, entry) in value.as_object().into_iter().flatten() {
            let property = keywords.get("properties").and_then(|all| all.get(key));
            let is_number = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
            let pattern = keywords.get("patternProperties").map(|all| &all["^\\d+$"]);
            let others = keywords.get("additionalProperties");
            let schema = property.or(pattern.filter(|_| is_number)).or(others);
            if let Some(schema) = schema {
                self.check(schema, entry, &format!("{at}.{key}"))?;
            }
        }
        Ok(())
    }
}

fn has_type(value: &Value, wanted: &Value) -> bool {
    let is = |wanted: &Value| match wanted.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("{other} is no type of JSON"),
    };
    wanted.as_array().map_or_else(|| is(wanted), |all| all.iter().any(is))
}

fn has_keys(value: &Value, wanted: &Value) -> bool {
    let mut keys = wanted.as_array().into_iter().flatten();
    value
        .as_object()
        .is_none_or(|entries| keys.all(|key| entries.contains_key(key.as_str().unwrap())))
}
