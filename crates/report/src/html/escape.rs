//! Text inside a page, so that no name of a tensor can be mistaken for markup or for a script.

use std::fmt;

use serde::Serialize;

/// Text as it stands between tags and in quoted attributes.
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' => f.write_str("&#10;")?,
                // Not allowed in a page at all.
                c if c.is_control() => f.write_str("\u{fffd}")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

/// Data as it stands inside a script element: no `<` can end the element early.
pub(crate) fn data(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_string());
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_browser_would_act_on() {
        let bad = "</script><b a='\"'>&\u{0}\u{1b}é";
        assert_eq!(
            Text(bad).to_string(),
            "&lt;/script&gt;&lt;b a=&#39;&quot;&#39;&gt;&amp;\u{fffd}\u{fffd}é"
        );
        let inside = data(&bad);
        assert!(!inside.contains('<'), "{inside}");
        assert_eq!(serde_json::from_str::<String>(&inside).expect("still JSON"), bad);
    }
}
