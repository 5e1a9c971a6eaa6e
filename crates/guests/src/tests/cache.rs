//! Caches and locks that several coroutines use at a time, and what code of others sees of them.

use super::waiting::{on_worker, value_in};
use super::{gateway, settings};
use crate::{LuaSettings, UntrustedLua};

/// Settings of code that may require everything.
fn on() -> LuaSettings {
    settings(UntrustedLua::On)
}

/// What several requests at a time are answered.
async fn together(settings: LuaSettings, code: &str, count: usize) -> Vec<String> {
    let gateway = gateway(settings);
    let mut tasks = Vec::new();
    for _ in 0..count {
        tasks.push(Box::pin(value_in(&gateway, code)));
    }
    let mut found = Vec::new();
    let mut done = vec![false; count];
    std::future::poll_fn(|cx| {
        for (task, done) in tasks.iter_mut().zip(&mut done).filter(|(_, done)| !**done) {
            if let std::task::Poll::Ready(value) = task.as_mut().poll(cx) {
                found.push(value);
                *done = true;
            }
        }
        if done.iter().all(|done| *done) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    found
}

#[test]
fn one_of_many_calls_the_callback() {
    let code = "local function make() ngx.sleep(0.02) return ngx.shared.kong:incr('made', 1, 0) end
        local value, err, level = kong.cache:get('k', nil, make) return tostring(value) .. tostring(err)";
    on_worker(async {
        let found = together(LuaSettings::default(), code, 20).await;
        assert_eq!(found, vec!["1nil"; 20]);
    });
}

#[test]
fn a_lock_has_one_holder() {
    let code = "local lock = require('resty.lock'):new('kong_locks') local d = ngx.shared.kong
        local waited = lock:lock('k') if not waited then return 'no lock' end
        local inside = d:incr('inside', 1, 0) ngx.sleep(0.002) d:incr('inside', -1)
        local ok = lock:unlock() return inside .. ' ' .. ok";
    on_worker(async {
        let found = together(on(), code, 10).await;
        assert_eq!(found, vec!["1 1"; 10]);
    });
}

#[test]
fn locks_time_out_expire_and_are_released_when_they_are_forgotten() {
    let lock = "local function new(o) return require('resty.lock'):new('kong_locks', o) end ";
    for (code, expected) in [
        ("local a = new() return tostring(a:lock('k')) .. select(2, a:lock('k'))", "0locked"),
        ("new():lock('k') local b = new({ timeout = 0 }) return select(2, b:lock('k'))", "timeout"),
        (
            "local a = new() a:lock('k') local b = new({ timeout = 0.01 }) return select(2, b:lock('k'))",
            "timeout",
        ),
        ("local a = new() a:lock('k') return a:unlock() .. tostring(new():lock('k'))", "10"),
        (
            "local a = new({ exptime = 0.01 }) a:lock('k') local n = new():lock('k') > 0 return tostring(n) .. select(2, a:unlock())",
            "truenot found",
        ),
        ("local a = new() a:lock('k') return tostring(a:expire(60))", "true"),
        ("return select(2, new():unlock()) .. select(2, new():expire(1))", "unlockedunlocked"),
        ("new():lock('k') collectgarbage() collectgarbage() return tostring(new():lock('k'))", "0"),
        ("return select(2, new():lock(nil))", "nil key"),
        (
            "local key = ('k'):rep(1e6) new():lock(key) local b = new({ timeout = 0 }) return select(2, b:lock(key))",
            "timeout",
        ),
        ("return select(2, require('resty.lock'):new('none'))", "dictionary not found"),
    ] {
        let found = super::waiting::value(on(), &format!("{lock}{code}"));
        assert_eq!(found, expected, "{code}");
    }
}

#[test]
fn a_phase_that_cannot_wait_gets_an_error_where_it_would() {
    let settings = LuaSettings { untrusted: UntrustedLua::On, ..LuaSettings::default() };
    let gateway = gateway(settings);
    let code = "local new = require('resty.lock').new new(nil, 'kong_locks'):lock('k')
        kong.log.set_serialize_value('said', select(2, pcall(function()
          kong.cache:get('other', nil, function() return 1 end)
          held = new(nil, 'kong_locks') held:lock('lua-resty-mlcache:lock:kong:k')
          return kong.cache:get('k', nil, function() return 1 end) end)))";
    let config = serde_json::json!({ "log": [code] });
    let hooks = gateway.plugin("post-function", config).unwrap();
    let outcome = gateway.send(&[&*hooks], "GET /");
    let mut exchange = outcome.exchange;
    hooks.log(&mut exchange);
    let fields = exchange.log_fields().unwrap().borrow();
    let said = fields[0].value.clone().unwrap();
    assert!(said.as_str().unwrap().ends_with("API disabled in the context of log_by_lua*"), "{said}");
}

#[test]
fn secrets_are_refused_in_phases_that_cannot_wait() {
    let gateway = gateway(on());
    let code = "kong.log.set_serialize_value('said', select(2, pcall(kong.vault.get, '{vault://env/path}')))";
    let config = serde_json::json!({ "header_filter": [code] });
    let hooks = gateway.plugin("post-function", config).unwrap();
    let outcome = gateway.send(&[&*hooks], "GET /");
    let fields = outcome.exchange.log_fields().unwrap().borrow();
    let said = fields[0].value.clone().unwrap();
    let expected = "API disabled in the context of header_filter_by_lua*";
    assert!(said.as_str().unwrap().ends_with(expected), "{said}");
}

#[test]
fn the_sandbox_does_not_see_what_plugins_keep() {
    on_worker(async {
        let gateway = gateway(LuaSettings {
            sandbox_requires: ["resty.mlcache", "resty.lock"].map(str::to_owned).to_vec(),
            ..LuaSettings::default()
        });
        let reach = |name: &str, dict: &str| {
            format!(
                "local c, e = require('resty.mlcache').new('{name}', '{dict}') \
                 return e or c:get('k', nil, function() return 'made' end)"
            )
        };
        let hidden = "no such lua_shared_dict: kong_db_cache";
        assert_eq!(value_in(&gateway, &reach("kong:", "kong_db_cache")).await, hidden);
        assert_eq!(value_in(&gateway, &reach("kong:", "kong")).await, "made");
        let lock = "return select(2, require('resty.lock'):new('kong_locks'))";
        assert_eq!(value_in(&gateway, lock).await, "dictionary not found");
    });
}

#[test]
fn values_that_code_writes_itself_are_not_taken_for_records() {
    let code = |bytes: &str| {
        format!(
            "ngx.shared.kong_db_cache:set('kong:k', {bytes}) \
             local ok, v, e, l = pcall(kong.cache.get, kong.cache, 'k', nil, function() return 'made' end) \
             return tostring(v)"
        )
    };
    let header = "'\\1weir' .. ('\\0'):rep(8)";
    for bytes in ["'x'", "7", "true", "'\\1weir'"] {
        assert_eq!(super::waiting::value(on(), &code(bytes)), "made", "{bytes}");
    }
    for body in
        ["''", "'\\4\\255\\255\\255\\255x'", "'\\3\\0'", "('\\5'):rep(100)", "'\\5\\1\\1\\5'", "'\\9'"]
    {
        let found = super::waiting::value(on(), &code(&format!("{header} .. {body}")));
        assert!(found.contains("malformed"), "{body}: {found}");
    }
}

#[test]
fn vaults_have_secrets_for_code_of_the_operator() {
    for (code, expected) in [
        ("return (kong.vault.get('{vault://env/path}'))", std::env::var("PATH").unwrap()),
        (
            "return select(2, kong.vault.get('{vault://none/x}'))",
            "unable to resolve reference {vault://none/x} (could not find vault (none))".to_owned(),
        ),
        (
            "return (select(2, pcall(kong.vault.get, 1)):gsub('^.*: ', ''))",
            "reference must be a string".to_owned(),
        ),
        ("return kong.vault.try(function(o) return o.a end, { a = 'x' })", "x".to_owned()),
        ("return kong.vault.update({ a = 'x' }).a", "x".to_owned()),
    ] {
        let found = super::waiting::value(on(), code);
        assert_eq!(found, expected, "{code}");
    }
}

#[test]
fn events_reach_handlers_on_all_workers() {
    let code = "local d, seen = ngx.shared.kong, {}
        kong.worker_events.register(function(data, event, source, worker)
          d:rpush('seen', source .. event .. tostring(data.a) .. worker) end, 's', 'e')
        kong.worker_events.register(function(data, event) d:rpush('seen', 'any' .. event) end, 's')
        kong.worker_events.register(function() error('no') end, 's', 'e')
        kong.worker_events.post('s', 'e', { a = 1 })
        kong.worker_events.post('other', 'e', { a = 1 })
        kong.worker_events.post('s', 'f')
        for i = 1, 3 do
          local one
          repeat ngx.sleep(0.001) one = d:lpop('seen') until one
          seen[i] = one
        end
        return table.concat(seen, ' ')";
    assert_eq!(super::waiting::value(on(), code), "anye se10 anyf");
    for (code, expected) in [
        (
            "local seen kong.worker_events.register(function(d) seen = d end, 's') kong.worker_events.post_local('s', 'e', 7) return seen",
            "7",
        ),
        (
            "return select(2, kong.worker_events.post('s', 'e', ('x'):rep(65535)))",
            "failed to publish event: payload exceeds the limitation (65535)",
        ),
        ("return tostring(kong.cluster_events:broadcast('c', 'd'))", "true"),
        (
            "local seen = {} local function note(d, event, source) seen[#seen + 1] = source .. event .. d end \
             kong.worker_events.subscribe('s', 'e', note) kong.worker_events.publish('current', 's', 'e', 1) \
             kong.worker_events.publish('current', 's', 'f', 2) kong.worker_events.unregister(note) \
             kong.worker_events.publish('current', 's', 'e', 3) return table.concat(seen, ' ')",
            "se1",
        ),
        ("return (select(2, pcall(kong.worker_events.register, 1)):gsub('^.*: ', ''))", "number"),
        (
            "for i = 1, 1001 do kong.worker_events.register(function() end, 's') end",
            "error: pre-function.access[1]:1: a worker has at most 1000 event handlers",
        ),
    ] {
        assert_eq!(super::waiting::value(on(), code), expected, "{code}");
    }
}
