//! The phase `certificate`, whose requests come over TLS.
use super::{folder, names};
use crate::harness::{Gateway, Identity, Upstream, one_route};
use std::ffi::OsStr;
use std::process::Command;

#[test]
fn a_global_plugin_asks_clients_for_their_certificates() {
    let (server, client) = (Identity::new("server"), Identity::new("client.test"));
    let upstream = Upstream::echoing();
    let configuration = format!(
        "{}plugins:\n- name: edge-guard\n  config: {{name: global}}\n\
         certificates:\n- {{cert: {}, key: {}, snis: [{{name: \"*.test\"}}]}}\n",
        one_route(upstream.address),
        server.cert_yaml(),
        server.key_yaml()
    );
    let gateway = Gateway::builder(&configuration)
        .set("plugins", &format!("bundled,{}", names().join(",")))
        .set("lua_package_path", &format!("{}/?.lua", folder().display()))
        .start();
    let ask = |more: &[&OsStr]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--insecure", "--http1.1", "--max-time", "60", "--dump-header", "-"]);
        curl.args(["--connect-to", &format!("::{}", gateway.proxy_ssl())]).args(more);
        String::from_utf8(curl.arg("https://a.test/").output().unwrap().stdout).unwrap()
    };
    let answer = ask(&[]);
    assert!(answer.contains("X-Certificate: none"), "{answer}");
    let (cert, key) = (client.cert(), client.key());
    let answer = ask(&["--cert".as_ref(), cert.as_ref(), "--key".as_ref(), key.as_ref()]);
    assert!(answer.contains("X-Certificate: presented"), "{answer}");
}
