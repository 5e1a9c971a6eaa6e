user = "bench"
hosts = {
  target    = { address = "192.0.2.10", internal_address = "10.0.0.10", roles = ["target"] }
  upstream  = { address = "192.0.2.11", internal_address = "10.0.0.11", roles = ["upstream", "database"] }
  generator = { address = "192.0.2.12", internal_address = "10.0.0.12", roles = ["generator"] }
}
