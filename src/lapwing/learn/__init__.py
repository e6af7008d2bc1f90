"""Learning from growing data: private training, and models that are shown to be good before they leave."""
