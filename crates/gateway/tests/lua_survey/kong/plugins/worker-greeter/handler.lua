local WorkerGreeter = { PRIORITY = 30, VERSION = "1.0.0" }

local greetings = {}

function WorkerGreeter:init_worker()
  ngx.shared.kong:add("worker-greeter:began", ngx.now())
end

function WorkerGreeter:configure(configs)
  greetings = {}
  for i, conf in ipairs(configs or {}) do
    greetings[#greetings + 1] = conf.greeting
  end
  table.sort(greetings)
end

function WorkerGreeter:access(conf)
  kong.service.request.set_header("X-Greetings", table.concat(greetings, " "))
  kong.service.request.set_header("X-Began", type(ngx.shared.kong:get("worker-greeter:began")))
  kong.service.request.set_header("X-Worker", ngx.worker.id() < ngx.worker.count() and "known" or "unknown")
end

return WorkerGreeter
