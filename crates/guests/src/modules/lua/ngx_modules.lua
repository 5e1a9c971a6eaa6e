-- Modules of lua-resty-core whose functions are those of `ngx`, or that say of the process what it is.
local name = ...
local empty = { version = "0.1.28" }

local modules = {
  ["ngx.errlog"] = {
    version = empty.version,
    raw_log = ngx.log,
    get_sys_filter_level = function() return ngx.NOTICE end,
    set_filter_level = function() return nil, "the node's log_level decides" end,
    get_logs = function() return {} end,
  },
  ["ngx.process"] = {
    version = empty.version,
    type = function() return "worker" end,
    get_master_pid = function() return ngx.worker.pid() end,
    enable_privileged_agent = function() return nil, "there is no privileged agent" end,
    signal_graceful_exit = function() return nil, "use weir quit" end,
  },
  ["ngx.req"] = {
    version = empty.version,
    add_header = function(header, value)
      local present = ngx.req.get_headers()[header]
      local all = type(present) == "table" and present or { present }
      all[#all + 1] = value
      ngx.req.set_header(header, all)
    end,
  },
}

return modules[name] or empty
