//! `kong.tools.queue`.

use super::waiting::{on_worker, value_in};
use super::{gateway, settings};
use crate::{LuaSettings, UntrustedLua};
use std::time::Duration;
use weir_plugin::Background;

const BEGIN: &str = "local queue = require('kong.tools.queue') local got = {} \
    local function note(conf, entries) got[#got + 1] = table.concat(entries, ',') return true end \
    local function all(n) while #got < n do ngx.sleep(0.001) end return table.concat(got, ' ') end ";

fn said(code: &str) -> String {
    let settings = LuaSettings { timeout: Duration::from_millis(500), ..settings(UntrustedLua::On) };
    on_worker(async { value_in(&gateway(settings), &format!("{BEGIN}{code}")).await })
}

#[test]
fn entries_are_handed_over_in_batches() {
    for (code, expected) in [
        ("assert(queue.enqueue({ name = 'q', max_coalescing_delay = 0 }, note, {}, 'a')) return all(1)", "a"),
        (
            "for i = 1, 5 do queue.enqueue({ name = 'q', max_batch_size = 2, max_coalescing_delay = 0.01 }, note, {}, i) end return all(3)",
            "1,2 3,4 5",
        ),
        (
            "for i = 1, 4 do queue.enqueue({ name = 'q', max_batch_size = 2, max_coalescing_delay = 3600 }, note, {}, i) end return all(2)",
            "1,2 3,4",
        ),
        (
            "for i = 1, 9 do queue.enqueue({ name = 'q', max_entries = 2, max_batch_size = 9, max_coalescing_delay = 0.01 }, note, nil, i) end return all(1)",
            "8,9",
        ),
        (
            "for i = 1, 3 do queue.enqueue({ name = 'q', max_bytes = 4, max_batch_size = 9, max_coalescing_delay = 0.01 }, note, nil, i .. 'b') end return all(1)",
            "2b,3b",
        ),
        (
            "return select(2, queue.enqueue({ name = 'q', max_bytes = 2 }, note, nil, 'abc'))",
            "string to be queued is longer (3 bytes) than the queue's max_bytes (2 bytes)",
        ),
        (
            "local n = 0 queue.enqueue({ name = 'q', max_coalescing_delay = 0 }, function(conf, entries) n = n + 1 if n < 3 then return false, 'no' end return note(conf, entries) end, {}, 'x') return all(1) .. n",
            "x3",
        ),
        (
            "local n = 0 queue.enqueue({ name = 'q', max_coalescing_delay = 0 }, function(conf, entries) n = n + 1 if n < 3 then error('no') end return note(conf, entries) end, {}, 'x') return all(1) .. n",
            "x3",
        ),
        (
            "local n = 0 local function never() n = n + 1 return false, 'no' end queue.enqueue({ name = 'q', max_retry_time = 0, max_coalescing_delay = 0 }, never, {}, 'x') \
          while queue.exists('q') do ngx.sleep(0.001) end return n",
            "1",
        ),
        (
            "local function slow(conf, entries) ngx.sleep(entries[1] == 'a' and 60 or 0) return note(conf, entries) end \
          local conf = { name = 'q', concurrency_limit = -1, max_coalescing_delay = 0 } queue.enqueue(conf, slow, {}, 'a') queue.enqueue(conf, slow, {}, 'b') return all(1)",
            "b",
        ),
        (
            "queue.enqueue({ name = 'q', max_coalescing_delay = 0 }, function(conf, entries) got[1] = conf.x .. entries[1] return true end, { x = 'conf ' }, 'e') return all(1)",
            "conf e",
        ),
        (
            "return tostring(pcall(queue.enqueue, {}, note, {}, 1)) .. select(2, queue.enqueue({ name = 'q' }, note))",
            "falseentry must be a non-nil Lua value",
        ),
        (
            "queue.enqueue({ name = 'q', max_entries = 1, max_coalescing_delay = 9, max_batch_size = 2 }, note, nil, 1) return tostring(queue.is_full({ name = 'q', max_entries = 1 })) .. tostring(queue.can_enqueue({ name = 'q', max_entries = 2 }, 1))",
            "truetrue",
        ),
        (
            "local p = queue.get_plugin_params('mine', { queue = { max_entries = 5 }, queue_size = 3, flush_timeout = 2 }, 'n') return p.name .. p.log_tag .. p.max_entries .. p.max_batch_size .. tostring(p.max_coalescing_delay)",
            "nmine53nil",
        ),
        ("return #queue.get_plugin_params('mine', {}).name", "36"),
    ] {
        assert_eq!(said(code), expected, "{code}");
    }
}

#[test]
fn a_handler_that_takes_too_long_does_not_stop_its_queue() {
    let brief = LuaSettings { timeout: Duration::from_millis(20), ..settings(UntrustedLua::On) };
    on_worker(async {
        let gateway = gateway(brief);
        let code = "local function handler(conf, entries) while entries[1] == 'endless' do end return note(conf, entries) end \
                    local conf = { name = 'q', max_coalescing_delay = 0 } queue.enqueue(conf, handler, nil, 'endless') \
                    ngx.sleep(0.001) while ngx.timer.running_count() > 0 do ngx.sleep(0.001) end \
                    queue.enqueue(conf, handler, nil, 'next') return all(1)";
        assert_eq!(value_in(&gateway, &format!("{BEGIN}{code}")).await, "next");
    });
}

#[test]
fn a_node_that_exits_empties_its_queues() {
    on_worker(async {
        let gateway = gateway(settings(UntrustedLua::On));
        let code = "_G.got = got local conf = { name = 'q', max_batch_size = 2, max_coalescing_delay = 3600 } \
                    for i = 1, 5 do queue.enqueue(conf, note, nil, i) end return 'queued'";
        assert_eq!(value_in(&gateway, &format!("{BEGIN}{code}")).await, "queued");
        let background = gateway.retained.get::<Background>();
        let ended = tokio::task::spawn_blocking(move || background.finish(Duration::from_secs(60)));
        assert!(ended.await.unwrap());
        assert_eq!(value_in(&gateway, "return table.concat(_G.got, ' ')").await, "1,2 3,4 5");
    });
}
