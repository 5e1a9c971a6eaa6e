//! What the nodes of one PostgreSQL tell each other from Lua.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, PostgresServer, eventually};
use serde_json::json;

const CODE: &str = "
    local path, dict = kong.request.get_path(), ngx.shared.kong
    if path == '/listen' then
      kong.cluster_events:subscribe('c', function(data) dict:set('heard', data) end)
      kong.cache:get('k', nil, function() return 'v' end)
    elseif path == '/tell' then
      kong.cluster_events:broadcast('c', 'hello')
      kong.cache:invalidate('k')
    end
    kong.response.exit(200, tostring(dict:get('heard')) .. ' ' .. tostring(select(3, kong.cache:probe('k'))))";

#[test]
fn events_and_invalidations_reach_the_other_node() {
    let mut settings = PostgresServer::settings(PostgresServer::shared_port(), "lua_cluster");
    settings.extend(
        [("untrusted_lua", "on"), ("db_update_frequency", "1")]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let [one, other] = Gateway::sharing_by(&settings);
    for (path, body) in [
        ("/services", json!({"name": "s", "url": "http://127.0.0.1:1"})),
        ("/services/s/routes", json!({"paths": ["/"]})),
        ("/plugins", json!({"name": "pre-function", "config": {"access": [CODE]}})),
    ] {
        let made = one.ask_admin("POST", path, &body.to_string());
        assert_eq!(made.status, 201, "{}", made.text());
    }
    for node in [&one, &other] {
        eventually("it listens", || node.get("/listen").text() == "nil v");
    }
    eventually("the other has heard it", || {
        one.get("/tell");
        other.get("/see").text() == "hello nil"
    });
    assert_eq!(one.get("/see").text(), "nil nil");
}
