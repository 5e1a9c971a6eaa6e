local ChunkFilter = { PRIORITY = 5, VERSION = "1.0.0" }

function ChunkFilter:header_filter()
  ngx.header.content_length = nil
  ngx.header["X-Filtered"] = { "one", "two" }
end

function ChunkFilter:body_filter(conf)
  local chunk, eof = ngx.arg[1], ngx.arg[2]
  local ctx = ngx.ctx
  ctx.chunk_filter_bytes = (ctx.chunk_filter_bytes or 0) + #(chunk or "")
  if eof then
    ngx.arg[1] = (chunk or "") .. conf.tail .. " " .. ctx.chunk_filter_bytes
  end
end

return ChunkFilter
