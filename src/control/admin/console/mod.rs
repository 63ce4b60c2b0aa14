//! The console: one page for operators, answered at `/`. The page is put together at the first
//! request from the files of this folder, and loads nothing: style and script stand in it, named by
//! their hashes, so that nothing else runs. The page has no data. It asks the admin API, as
//! everybody does.

use std::sync::LazyLock;

use axum::http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// The path of the page. Browsers cannot show a token when they open a page, so nobody needs one.
pub(crate) const PATH: &str = "/";

const FRAME: &str = include_str!("console.html");
const STYLE: &str = concat!(include_str!("look.css"), include_str!("parts.css"));
/// The script in the order in which its files need each other.
const SCRIPT: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("text.js"),
    include_str!("dom.js"),
    include_str!("api.js"),
    include_str!("charts.js"),
    include_str!("parts.js"),
    include_str!("overview.js"),
    include_str!("timers.js"),
    include_str!("timer.js"),
    include_str!("destinations.js"),
    include_str!("letters.js"),
    include_str!("cluster.js"),
    include_str!("node.js"),
    include_str!("alarms.js"),
    include_str!("main.js"),
    "})();\n"
);

/// The page and the policy that goes with it.
struct Console {
    page: String,
    policy: String,
}

static CONSOLE: LazyLock<Console> = LazyLock::new(|| Console {
    page: FRAME.replacen("/*STYLE*/", STYLE, 1).replacen("/*SCRIPT*/", SCRIPT, 1),
    policy: format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
        hash_of(SCRIPT),
        hash_of(STYLE),
    ),
});

/// What a policy calls the text of an element (Content Security Policy Level 3, section 2.3.1).
fn hash_of(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

/// Answers the page.
pub(super) async fn page() -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, CONSOLE.policy.as_str()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, CONSOLE.page.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_holds_style_and_script_once_and_loads_nothing() {
        let page = &CONSOLE.page;
        for part in [STYLE, SCRIPT] {
            assert_eq!(page.matches(part).count(), 1);
            assert!(!part.contains("</"), "the text would end its element");
        }
        for outside in ["src=", "url(", "@import", "http://", "https://", "import("] {
            let places: Vec<&str> = page.lines().filter(|line| line.contains(outside)).collect();
            // The name of a language, which browsers do not fetch.
            assert!(places.iter().all(|line| line.contains("www.w3.org/2000/svg")), "{places:?}");
        }
    }

    #[test]
    fn the_script_shows_text_as_text() {
        for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!SCRIPT.contains(sink), "{sink}");
        }
    }

    #[test]
    fn the_policy_names_what_the_page_holds() {
        let policy = &CONSOLE.policy;
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
        for rule in ["connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(rule), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}
