//! Tokens: who looks sees what cannot be done and why; an operator's token changes that, and is kept
//! nowhere but in the tab.

use kit::runner::Story;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;

use crate::browser::Browser;
use crate::node::{Node, place};

pub const STORIES: &[Story] =
    &[("tokens::orders_wait_for_the_token_of_an_operator", orders_wait_for_an_operator)];

fn orders_wait_for_an_operator() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let lines = ["reader", "operator"].map(|role| {
        let mut digest = String::new();
        for byte in Sha256::digest(format!("token of the {role}")) {
            write!(digest, "{byte:02x}").expect("memory");
        }
        format!("{role} {role} {digest}\n")
    });
    std::fs::write(&file, lines.concat()).expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("set");
    let lines = format!("[auth]\ntokens_file = {:?}", file.display().to_string());
    let node = Node::start_at(place(), place(), &lines);
    let browser = Browser::open(&node.console());
    browser.page("/destinations", "Destinations");
    browser.wait_for_text("Orders need the token of an operator");
    let orders = "return [...document.querySelectorAll('[data-order]')].map((one) => one.disabled)";
    assert_eq!(browser.script(orders, &[]), json!([true]));
    let reason = "return document.querySelector('[data-order]').title";
    assert!(browser.script(reason, &[]).to_string().contains("operator"));
    browser.picture("destinations-without-token");

    browser.press("Token");
    browser.wait("the question", "return document.querySelector('dialog[open]') !== null");
    browser.size(420);
    browser.scheme("dark");
    browser.picture("token-420-dark");
    browser.size(1_280);
    browser.scheme("light");
    browser.fill("dialog input", "token of the reader\u{e007}");
    browser.wait_for_text("Your token is one of a reader");
    assert_eq!(browser.script(orders, &[]), json!([true]));

    browser.press("Token: reader");
    browser.script("document.querySelector('dialog input').value = ''", &[]);
    browser.fill("dialog input", "nonsense\u{e007}");
    browser.wait_for_text("This node does not know that token.");

    browser.press("Token: not known");
    browser.script("document.querySelector('dialog input').value = ''", &[]);
    browser.fill("dialog input", "token of the operator\u{e007}");
    browser.wait("orders", "return document.querySelector('[data-order]')?.disabled === false");
    browser.press("Set a rule …");
    browser.fill("dialog input[name=destination]", "a.example");
    browser.fill("dialog input[name=max-in-flight]", "5\u{e007}");
    browser.wait_for_text("The rule holds.");
    assert_eq!(node.document("/destinations/a.example")["max-in-flight"], 5);
    let kept = "return [localStorage.length, document.cookie, sessionStorage.length]";
    assert_eq!(browser.script(kept, &[]), json!([0, "", 1]));
    assert!(!browser.script("return location.href", &[]).to_string().contains("token of"));
}
