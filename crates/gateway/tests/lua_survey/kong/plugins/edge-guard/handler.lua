local EdgeGuard = { PRIORITY = 5000, VERSION = "1.0.0" }

function EdgeGuard:certificate(conf)
  kong.client.tls.request_client_certificate()
  kong.client.tls.disable_session_reuse()
end

function EdgeGuard:rewrite(conf)
  kong.ctx.plugin.rewritten_by = conf.name
  local agent = kong.request.get_header("User-Agent")
  for _, blocked in ipairs(conf.blocked) do
    if agent and agent:find(blocked, 1, true) then
      return kong.response.exit(403, { message = "not welcome" })
    end
  end
  kong.service.request.set_header("X-Early", kong.request.get_path())
  kong.service.request.clear_header("X-Internal")
  -- There is no route yet.
  kong.ctx.plugin.route = pcall(kong.router.get_route) and "known" or "unknown"
end

function EdgeGuard:access(conf)
  kong.service.request.set_headers({
    ["X-Rewrite"] = kong.ctx.plugin.rewritten_by or "none",
    ["X-Access"] = conf.name,
    ["X-Route"] = (kong.ctx.plugin.route or "never asked") .. ", " .. kong.router.get_route().name:match("^[^-]+"),
  })
  local chain = kong.client.tls.get_full_client_certificate_chain()
  kong.response.set_header("X-Certificate", chain and "presented" or "none")
end

return EdgeGuard
