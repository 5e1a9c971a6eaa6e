-- Answers each request with a redirect.
local MyRedirect = { PRIORITY = 779, VERSION = "1.0.0" }

function MyRedirect:access(conf)
  local location = conf.location
  if conf.keep_incoming_path then
    location = location:match("^%a+://[^/?#]*") .. kong.request.get_path_with_query()
  end
  return kong.response.exit(conf.status_code, "redirecting", { Location = location })
end

return MyRedirect
