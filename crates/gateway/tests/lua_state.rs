//! State that Lua code on several workers shares, and what is counted of its calls.
#![allow(clippy::unwrap_used)]

use crate::harness::{Gateway, Identity, Upstream, document, eventually, service};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::process::Command;
use std::thread;

/// A plugin as people write it: it looks a credential up once, and counts requests.
const CODE: &str = "
local function look_up(key)
  ngx.sleep(0.05)
  ngx.shared.counts:incr('lookups', 1, 0)
  if key ~= 'good' then return nil end
  return { consumer = 'bob', groups = { 'a', 'b' } }
end
local key = kong.request.get_header('apikey')
local credential, err = kong.cache:get('credential:' .. key, { ttl = 600 }, look_up, key)
if err then return kong.response.exit(500, err) end
if not credential then return kong.response.exit(401, { message = 'Unauthorized' }) end
local count = ngx.shared.counts:incr('requests', 1, 0)
kong.response.exit(200, { consumer = credential.consumer, count = count, group = credential.groups[2],
  lookups = ngx.shared.counts:get('lookups'), worker = ngx.worker.id(), workers = ngx.worker.count() })";

fn with(plugins: &Json) -> String {
    let route = "routes: [{name: all, paths: [/]}]";
    document(&[], &format!("{route}\nplugins: {plugins}\n"))
}

fn answer(gateway: &Gateway, key: &str) -> Json {
    let answer = gateway.get_with("/", &format!("apikey: {key}\r\n"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn workers_share_a_cache_and_counters_which_a_reload_keeps() {
    let plugin = json!([{ "name": "pre-function", "config": { "access": [CODE] } }]);
    let gateway = Gateway::builder(&with(&plugin))
        .set("workers", "4")
        .set("untrusted_lua", "on")
        .set("lua_shared_dict", "counts 1m")
        .start();
    let clients = (0..40).map(|_| || (0..5).map(|_| answer(&gateway, "good")).collect::<Vec<_>>());
    let answers: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = clients.map(|client| scope.spawn(client)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let all = |name: &str| answers.iter().map(|it| it[name].as_u64().unwrap()).collect::<BTreeSet<_>>();
    assert_eq!(all("count"), (1..=200).collect(), "each request is counted once");
    assert_eq!(all("lookups"), [1].into(), "one lookup for all workers");
    assert!(all("worker").len() > 1 && all("workers") == [4].into(), "{:?}", all("worker"));
    assert!(answers.iter().all(|it| it["consumer"] == "bob" && it["group"] == "b"));
    let refused = |gateway: &Gateway| gateway.get_with("/", "apikey: bad\r\n").status;
    assert_eq!((refused(&gateway), refused(&gateway)), (401, 401));

    let more = json!([{ "name": "pre-function", "config": { "access": [CODE], "log": ["return"] } }]);
    let output = gateway.reload(&with(&more));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let after = answer(&gateway, "good");
    assert_eq!((&after["count"], &after["lookups"]), (&json!(201), &json!(2)), "{after}");
}

#[test]
fn code_reads_what_the_node_has_served() {
    let code = "kong.response.exit(200, kong.nginx.get_statistics())";
    let plugin = json!([{ "name": "pre-function", "config": { "access": [code] } }]);
    let gateway = Gateway::builder(&with(&plugin)).start();
    let first = gateway.get("/").json();
    assert_eq!(first["connections_accepted"], first["connections_handled"], "{first}");
    assert!(first["connections_active"].as_u64() > Some(0), "{first}");
    eventually("requests are counted", || gateway.get("/").json()["total_requests"].as_u64() >= Some(3));
}

#[test]
fn calls_that_end_early_are_counted() {
    let access = [
        "if kong.request.get_path() == '/loop' then while true do end end",
        "if kong.request.get_path() == '/error' then error('no') end",
        "if kong.request.get_path() == '/memory' then local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e5) .. i end end",
        "kong.response.exit(204)",
    ];
    let plugin = json!([{ "name": "pre-function", "config": { "access": access } }]);
    let gateway = Gateway::builder(&with(&plugin)).set("lua_memory", "16m").start();
    for (path, status) in [("/loop", 500), ("/error", 500), ("/error", 500), ("/memory", 500), ("/", 204)] {
        assert_eq!(gateway.get(path).status, status, "{path}");
    }
    let counted = |reason: &str, count: u32| {
        let line = format!("weir_lua_ended_total{{plugin=\"pre-function\",reason=\"{reason}\"}} {count}");
        eventually(&line, || gateway.status("/metrics").text().contains(&line));
    };
    counted("error", 2);
    counted("timeout", 1);
    counted("memory", 1);
}

#[test]
fn the_memory_of_lua_is_monitored() {
    let code = "_G.kept = _G.kept or ('x'):rep(3 * 2^20) ngx.shared.my_counters:set('a', ('x'):rep(2^18)) kong.response.exit(200,
      kong.node.get_memory_stats().lua_shared_dicts.my_counters)";
    let plugin = json!([{ "name": "pre-function", "config": { "access": [code] } }]);
    let builder = Gateway::builder(&with(&plugin)).set("untrusted_lua", "on").set("workers", "2");
    let gateway = builder.set("lua_shared_dict", "my_counters 1m").start();
    let of_code = gateway.get("/").json();
    assert_eq!(of_code["capacity"], 1 << 20, "{of_code}");
    // Until a further call on the same worker, the VM is shown as it was before the first.
    eventually("a VM is shown with what it holds", || {
        assert_eq!(gateway.get("/").status, 200);
        let vms = gateway.status("/status").json()["memory"]["workers_lua_vms"].clone();
        let held = |vm: &Json| {
            vm["http_allocated_gc"].as_str().unwrap().strip_suffix(" MiB").unwrap().parse::<f64>()
        };
        vms.as_array().unwrap().iter().any(|vm| vm["pid"] == gateway.pid() && held(vm).unwrap() > 3.0)
    });
    for memory in [gateway.status("/status"), gateway.admin("/status")].map(|it| it.json()["memory"].clone())
    {
        let dict = json!({ "allocated_slabs": "0.25 MiB", "capacity": "1.00 MiB" });
        assert_eq!(memory["lua_shared_dicts"]["my_counters"], dict, "{memory}");
        assert_eq!(memory["lua_shared_dicts"]["kong"]["capacity"], "5.00 MiB", "{memory}");
    }
    for response in [gateway.status("/status?unit=b"), gateway.admin("/status?unit=b")] {
        assert_eq!(response.json()["memory"]["lua_shared_dicts"]["my_counters"]["capacity"], 1 << 20);
    }
    let refused = gateway.admin("/status?unit=t");
    assert_eq!(
        (refused.status, refused.json()["message"].as_str().unwrap().get(..16)),
        (400, Some("invalid unit 't'"))
    );
    let metrics = gateway.status("/metrics").text().to_owned();
    let value = |name: &str, label: &str| {
        let has = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
        let found: Vec<_> = metrics.lines().filter(has).collect();
        let [line] = found[..] else { panic!("{name} {label}: {metrics}") };
        line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap()
    };
    let used = value("kong_memory_lua_shared_dict_bytes", "shared_dict=\"my_counters\"");
    assert_eq!(used, of_code["allocated_slabs"].as_u64().unwrap() as usize);
    assert_eq!(value("kong_memory_lua_shared_dict_total_bytes", "shared_dict=\"my_counters\""), 1 << 20);
    assert!(value("kong_memory_workers_lua_vms_bytes", &format!("pid=\"{}\"", gateway.pid())) > 3 << 20);
}

/// Reads what the log phase of the request before has kept.
const KEPT: &str =
    "if kong.request.get_path() == '/kept' then kong.response.exit(200, ngx.shared.kong:get('kept')) end";

/// What the log phase keeps, once it has.
fn kept(gateway: &Gateway) -> String {
    let mut text = String::new();
    eventually("a record that the log phase keeps", || {
        text = gateway.get("/kept").text().to_owned();
        !text.is_empty()
    });
    text
}

#[test]
fn code_sees_the_record_that_log_plugins_write() {
    let upstream = Upstream::echoing();
    let log = "if kong.request.get_path() == '/kept' then return end
        kong.log.set_serialize_value('mine.own', 'set')
        local r = kong.log.serialize()
        ngx.shared.kong:set('kept', table.concat({ r.request.method, r.response.status, r.client_ip, r.service.host,
          r.mine.own, r.workspace_name, type(r.latencies.kong), r.request.headers.authorization }, ' '))";
    let plugin = json!([{ "name": "post-function", "config": { "access": [KEPT], "log": [log] } }]);
    let services = [service("/", upstream.address, "", "")];
    let gateway = Gateway::start(&document(&services, &format!("plugins: {plugin}\n")));
    assert_eq!(gateway.get_with("/a", "Authorization: secret\r\n").status, 200);
    assert_eq!(kept(&gateway), "GET 200 127.0.0.1 127.0.0.1 set default number REDACTED");
}

#[test]
fn code_reads_the_services_body_where_it_was_buffered() {
    let upstream = Upstream::start(|mut peer, _| {
        while peer.request().is_some() {
            peer.send(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
            );
            peer.send("5\r\n{\"a\":\r\n").send("4\r\n[1]}\r\n").send("0\r\n\r\n");
        }
    });
    let config = json!({
        "access": ["if kong.request.get_path() == '/buffered' then kong.service.request.enable_buffering() end"],
        "body_filter": ["local ok, body = pcall(kong.service.response.get_body)
            ngx.arg[1] = ngx.arg[2] and (ok and body.a[1] .. kong.service.response.get_raw_body() or body) or ''"],
    });
    let plugin = json!([{ "name": "pre-function", "config": config }]);
    let services = [service("/", upstream.address, "", "strip_path: false")];
    let gateway = Gateway::start(&document(&services, &format!("plugins: {plugin}\n")));
    assert_eq!(gateway.get("/buffered").text(), "1{\"a\":[1]}");
    let other = gateway.get("/other");
    assert!(
        other.text().contains("service body is only available with buffered proxying"),
        "{}",
        other.text()
    );
}

#[test]
fn code_does_not_see_the_status_of_an_earlier_response() {
    let access = "if kong.request.get_path() == '/no' then kong.response.exit(418) end
        kong.response.exit(200, tostring(ngx.status))";
    let plugin = json!([{ "name": "pre-function", "config": { "access": [access] } }]);
    let gateway = Gateway::builder(&with(&plugin)).set("workers", "1").start();
    assert_eq!(gateway.get("/no").status, 418);
    assert_eq!(gateway.get("/").text(), "0");
}

#[test]
fn what_code_prints_has_its_status_and_its_type() {
    let access = "ngx.status = 401 ngx.header.content_type = 'text/x'
        ngx.say('no') if kong.request.get_path() == '/exit' then ngx.exit(ngx.HTTP_OK) end";
    let plugin = json!([{ "name": "pre-function", "config": { "access": [access] } }]);
    let gateway = Gateway::start(&with(&plugin));
    for path in ["/", "/exit"] {
        let answer = gateway.get(path);
        assert_eq!((answer.status, answer.text()), (401, "no\n"), "{path}");
        assert_eq!(answer.head.all("content-type"), ["text/x"], "{path}");
    }
}

#[test]
fn code_sees_settings_but_no_secrets() {
    let access = "local c = kong.configuration
        kong.response.exit(200, { c.workers, c.untrusted_lua, tostring(c.pg_password), tostring(c.pg_user),
          tostring(c.remove_sensitive().pg_password), kong.version, tostring(kong.version_num) })";
    let plugin = json!([{ "name": "pre-function", "config": { "access": [access] } }]);
    let gateway = Gateway::builder(&with(&plugin)).set("workers", "1").set("pg_password", "hunter2").start();
    let seen = gateway.get("/").json();
    let version = gateway.admin("/").json()["version"].clone();
    assert_eq!((&seen[1], &seen[2], &seen[4]), (&json!("sandbox"), &json!("nil"), &json!("nil")), "{seen}");
    assert_eq!((&seen[5], &seen[6]), (&version, &json!("3009001")), "{seen}");
    assert!(seen[3] != "nil" && !seen.to_string().contains("hunter2"), "{seen}");
}

#[test]
fn code_asks_for_certificates_and_reads_them() {
    let (server, client) = (Identity::new("server"), Identity::new("client.test"));
    let access = "local chain = kong.client.tls.get_full_client_certificate_chain()
        kong.client.tls.set_client_verify('FAILED:unknown')
        kong.response.exit(200, chain or 'none')";
    let certificate = "if kong.client.get_ip() then kong.client.tls.request_client_certificate() end
        kong.client.tls.disable_session_reuse()";
    let plugin =
        json!([{ "name": "pre-function", "config": { "certificate": [certificate], "access": [access] } }]);
    let (cert, key) = (server.cert_yaml(), server.key_yaml());
    let more = format!("certificates:\n- {{cert: {cert}, key: {key}, snis: [{{name: \"*.test\"}}]}}\n");
    let gateway = Gateway::start(&(with(&plugin) + &more));
    let ask = |more: &[&std::ffi::OsStr]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--insecure", "--http1.1", "--max-time", "60"]);
        curl.args(["--connect-to", &format!("::{}", gateway.proxy_ssl())]).args(more);
        let output = curl.arg("https://a.test/").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(ask(&[]), "none");
    let (cert, key) = (client.cert(), client.key());
    let presented = ask(&["--cert".as_ref(), cert.as_ref(), "--key".as_ref(), key.as_ref()]);
    let expected = std::fs::read_to_string(&cert).unwrap().replace("\r\n", "\n");
    assert_eq!(presented, expected);
}
