//! JSON as openPMD-api's JSON backend writes it: for small meshes, and for people to read.

use serde_json::{Map, Value, json};

use super::tree::{Node, Says};

/// The text of a file.
pub(crate) fn text(root: &Node) -> String {
    let mut value = node(root);
    value["platform_byte_widths"] = json!({ "DOUBLE": 8, "FLOAT": 4, "UINT": 4, "ULONGLONG": 8, "CHAR": 1 });
    value.to_string()
}

fn node(of: &Node) -> Value {
    let mut map = Map::new();
    let attributes: Map<String, Value> =
        of.attributes.iter().map(|(name, says)| (name.to_string(), attribute(says))).collect();
    map.insert("attributes".to_string(), attributes.into());
    for (name, inside) in &of.inside {
        map.insert(name.clone(), node(inside));
    }
    if let Some(data) = &of.data {
        map.insert("data".to_string(), nested(&data.shape, &data.values));
        map.insert("datatype".to_string(), json!("DOUBLE"));
    }
    map.into()
}

fn attribute(says: &Says) -> Value {
    let (datatype, value) = match says {
        Says::Text(text) => ("STRING", json!(text)),
        Says::Texts(texts) => ("VEC_STRING", json!(texts)),
        Says::Number(number) => ("DOUBLE", json!(number)),
        Says::Single(number) => ("FLOAT", json!(number)),
        Says::Count(count) => ("UINT", json!(count)),
        Says::Numbers(numbers) => ("VEC_DOUBLE", json!(numbers)),
        Says::Counts(counts) => ("VEC_ULONGLONG", json!(counts)),
        Says::Powers(powers) => ("ARR_DBL_7", json!(powers)),
    };
    json!({ "datatype": datatype, "value": value })
}

/// Values as nested lists, one level an axis.
fn nested(shape: &[usize], values: &[f64]) -> Value {
    match shape {
        [] | [_] => json!(values),
        [_, rest @ ..] => {
            let each = rest.iter().product::<usize>().max(1);
            Value::Array(values.chunks(each).map(|part| nested(rest, part)).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Data;
    use super::*;

    #[test]
    fn axes_are_lists_in_lists() {
        let data = Data { shape: vec![2, 1, 2], values: vec![1.0, 2.0, 3.0, 4.0] };
        assert_eq!(nested(&data.shape, &data.values), json!([[[1.0, 2.0]], [[3.0, 4.0]]]));
        let root = Node::new(vec![("software", Says::Text("x".to_string()))])
            .with("E", Node::new(vec![("unitSI", Says::Number(2.0))]).holding(vec![2], vec![0.5, 1.5]));
        let read: Value = serde_json::from_str(&text(&root)).expect("JSON");
        assert_eq!(read["attributes"]["software"]["value"], "x");
        assert_eq!(read["E"]["data"], json!([0.5, 1.5]));
        assert_eq!(read["E"]["attributes"]["unitSI"], json!({ "datatype": "DOUBLE", "value": 2.0 }));
    }
}
