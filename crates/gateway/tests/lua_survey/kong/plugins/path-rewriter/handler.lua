local ngx_re_sub = ngx.re.sub

local PathRewriter = { PRIORITY = 850, VERSION = "0.2.0" }

function PathRewriter:access(conf)
  local path = kong.request.get_path()
  for _, rule in ipairs(conf.rules) do
    local rewritten, count, err = ngx_re_sub(path, rule.pattern, rule.to, "jo")
    if err then
      kong.log.err("cannot rewrite ", path, ": ", err)
      return kong.response.exit(500, { message = "bad rewrite rule" })
    end
    if count > 0 then
      kong.service.request.set_path(rewritten)
      kong.log.debug("rewrote ", path, " to ", rewritten)
      return
    end
  end
end

return PathRewriter
