//! CAs that refuse, and those that do not do what they should.
use super::{declared, is_of_ca, order, presented, with_ca};
use crate::harness::{Identity, PebblePlan, TlsUpstream, Upstream, closed_port};
use serde_json::json;

#[test]
fn what_a_ca_refuses_is_told_and_not_tried_again_soon() {
    let (gateway, _ca) = with_ca(&json!({ "tos_accepted": false }), &json!({}));
    let message = order(&gateway, "a.test", 500);
    assert!(message.starts_with("failed to update certificate: the CA refused the account ("), "{message}");
    let message = order(&gateway, "a.test", 500);
    let expected = "failed to update certificate: please try again in ";
    assert!(
        message.starts_with(expected) && message.contains("for host a.test because of previous failure"),
        "{message}"
    );
    let (gateway, _ca) = with_ca(&json!({}), &json!({ "domainBlocklist": ["a.test"] }));
    let message = order(&gateway, "a.test", 500);
    assert!(message.contains("the CA refused the order"), "{message}");
    assert_eq!(order(&gateway, "c.b.test", 201), "certificate for host c.b.test is created");
}

#[test]
fn a_name_that_leads_elsewhere_gets_none() {
    let plan = PebblePlan::on_free_ports();
    let gateway = declared(&plan.directory(), &plan.trusted(), &json!({})).start();
    let elsewhere = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother");
    let _ca = plan.start(elsewhere.address, &json!({}));
    let message = order(&gateway, "a.test", 500);
    assert!(message.contains("the CA could not validate the name: "), "{message}");
    assert!(message.ends_with("port 80 of the name must lead to this node"), "{message}");
    assert!(!is_of_ca(&presented(gateway.proxy_ssl(), "a.test")));
}

#[test]
fn cas_that_do_not_answer_as_they_should_are_given_up() {
    let identity = Identity::new("localhost");
    let trusted = identity.cert().display().to_string();
    let message_of = |directory: &str, trusted: &str| {
        let gateway = declared(directory, trusted, &json!({})).start();
        // A handshake is not held up.
        assert!(presented(gateway.proxy_ssl(), "x.b.test").contains("Serverpublickey"));
        let message = order(&gateway, "a.test", 500);
        assert!(order(&gateway, "a.test", 500).contains("please try again in"), "{message}");
        message
    };
    let message = message_of(&format!("http://{}/dir", closed_port()), &trusted);
    assert!(message.contains("does not answer"), "{message}");
    let reset = Upstream::start(|mut peer, _| {
        let _ = peer.request();
        peer.reset();
    });
    let message = message_of(&format!("http://{}/dir", reset.address), &trusted);
    assert!(message.contains("does not answer"), "{message}");
    for body in ["rubbish", "{}", r#"{"newNonce":"x","newAccount":"y","newOrder":"z"}"#] {
        let length = body.len();
        let rubbish =
            Upstream::answering(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"));
        let message = message_of(&format!("http://{}/dir", rubbish.address), &trusted);
        assert!(
            message.contains("not as RFC 8555 has it") || message.contains("does not answer"),
            "{message}"
        );
    }
    let half = Upstream::start(|mut peer, _| {
        let _ = peer.request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{");
    });
    let message = message_of(&format!("http://{}/dir", half.address), &trusted);
    assert!(message.contains("does not answer"), "{message}");
    // With a certificate that no authority vouches for.
    let other = TlsUpstream::start(&Identity::new("localhost"), &["-www"]);
    let message = message_of(&format!("https://{}/dir", other.address), &trusted);
    assert!(message.contains("lua_ssl_trusted_certificate"), "{message}");
}

#[test]
fn a_ca_that_hangs_is_given_up() {
    let ((hanging, asked), identity) = (Upstream::holding(""), Identity::new("localhost"));
    let gateway = declared(
        &format!("http://{}/dir", hanging.address),
        &identity.cert().display().to_string(),
        &json!({}),
    )
    .start();
    let message = order(&gateway, "a.test", 500);
    assert!(message.contains("the server took too long"), "{message}");
    assert_eq!(asked.try_iter().count(), 1);
}
