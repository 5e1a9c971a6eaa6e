//! Who may see and change what.
use super::{Browser, inputs};
use crate::harness::{Gateway, weir};

/// A token of the Admin API, and the setting that makes it valid.
pub(super) fn new_token(flags: &[&str]) -> (String, String) {
    let output = weir().args(["admin", "token"]).args(flags).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let value = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {output}")).trim().to_owned()
    };
    (value("token:"), value("admin_auth:"))
}

#[test]
fn people_log_in_with_a_token() {
    let (token, hash) = new_token(&[]);
    let gateway = Gateway::empty()
        .set("admin_gui_listen", "127.0.0.1:0")
        .set("admin_auth", &format!("ci={hash}"))
        .start();
    let mut browser = Browser::of(&gateway);
    let refused = browser.get("/routes?tags=a");
    assert_eq!((refused.status, refused.header("location")), (303, Some("login?next=routes%3Ftags%3Da")));
    let wrong = browser.submit("/login?next=routes", &[("token", "guess")]);
    assert_eq!(wrong.status, 401, "{}", wrong.text());
    let right = browser.submit("/login?next=routes", &[("token", &token)]);
    assert_eq!((right.status, right.header("location")), (303, Some("routes")), "{}", right.text());
    let cookie = right.header("set-cookie").unwrap();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains(&token),
        "{cookie}"
    );
    let page = browser.page("/routes");
    assert!(page.contains("Log out") && !page.contains(&token), "{page}");
    let secret = token;
    let token = inputs(&page).into_iter().find(|(name, _)| name == "form_token").unwrap();
    assert_eq!(browser.ask("POST", "/logout", "", &format!("form_token={}", token.1)).status, 303);
    assert_eq!(browser.get("/routes").status, 303);
    let away = browser.submit("/login?next=https://elsewhere.example", &[("token", &secret)]);
    assert_eq!(away.header("location"), Some("./"));
}

#[test]
fn a_person_who_may_only_read_sees_no_controls_and_changes_nothing() {
    let ((writer, writer_hash), (reader, reader_hash)) = (new_token(&[]), new_token(&["--read-only"]));
    let gateway = Gateway::empty()
        .set("admin_gui_listen", "127.0.0.1:0")
        .set("admin_auth", &format!("{writer_hash}, {reader_hash}"))
        .start();
    let mut writes = Browser::of(&gateway);
    writes.submit("/login", &[("token", &writer)]);
    assert_eq!(writes.save("/new/services", &[("name", "orders"), ("host", "127.0.0.1")]).status, 303);
    let mut reads = Browser::of(&gateway);
    assert_eq!(reads.submit("/login", &[("token", &reader)]).status, 303);
    for path in ["/services", "/services/orders", "/", "/search?q=orders"] {
        let page = reads.page(path);
        for control in ["new/", "edit/", "delete/"] {
            assert!(!page.contains(&format!("href=\"{control}")), "{path}: {page}");
            assert!(!page.contains(&format!("href=\"../{control}")), "{path}: {page}");
        }
    }
    let form_token = inputs(&reads.page("/services")).into_iter().find(|(name, _)| name == "form_token");
    let body = format!("form_token={}&name=orders", form_token.unwrap().1);
    for path in ["/new/services", "/edit/services/orders", "/delete/services/orders"] {
        assert!(reads.page(path).contains("the role read-only"), "{path}");
        let refused = reads.ask("POST", path, "", &body);
        assert_eq!(refused.status, 403, "{path}: {}", refused.text());
        assert!(refused.text().contains("the role read-only"), "{path}: {}", refused.text());
    }
    assert!(writes.page("/services/orders").contains("edit/services"));
}
