"""What is on this machine: cards, driver, engines that listen, exporters, containers. Nothing is changed."""
