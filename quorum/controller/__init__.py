"""The pure room of meaning: from an image and a command to records and a reply. It decides, it does not do.

`controller.Controller` is the front; behind it each file decides one kind of thing:

    commands  decision            what may be asked, and what a decision is
    placement topics partitions   where replicas go, what topics may be, who leads
    brokers registration contact  who is there, who may come, what hearing of it does
    sessions shutdowns walks      who was heard when; ways out that take several batches
    alter_partition               what leaders propose
    configs   features            what may be set
    views                         what an admin is shown
"""
