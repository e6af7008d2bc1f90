"""The cases that the auditor attacks: one for each thing that makes a privacy claim.

Each family has a file. A test fails if something that is exported makes a claim and has no case.
"""

from __future__ import annotations

from lapwing.audit.case import AuditCase


def cases() -> list[AuditCase]:
    """Return all claims of Lapwing, with the stages that try to break them.

    Returns:
        One case for each thing that makes a privacy claim. Families are imported here, so that a command
        loads only what it needs.

    Example:
        >>> from lapwing.audit import cases
        >>> cases()[0].name
        'Laplace'
    """
    from lapwing.audit.registry.aggregates import aggregate_cases, batch_cases  # noqa: PLC0415
    from lapwing.audit.registry.composed_losses import loss_cases  # noqa: PLC0415
    from lapwing.audit.registry.gate import gate_cases  # noqa: PLC0415
    from lapwing.audit.registry.joint_noise_cases import joint_noise_cases  # noqa: PLC0415
    from lapwing.audit.registry.learning import learning_cases  # noqa: PLC0415
    from lapwing.audit.registry.mechanisms import mechanism_cases  # noqa: PLC0415
    from lapwing.audit.registry.preliminary import preliminary_cases  # noqa: PLC0415
    from lapwing.audit.registry.protocols import protocol_cases  # noqa: PLC0415
    from lapwing.audit.registry.publishing import publishing_cases  # noqa: PLC0415
    from lapwing.audit.registry.randomizers import randomizer_cases  # noqa: PLC0415
    from lapwing.audit.registry.sensitivities import sensitivity_cases  # noqa: PLC0415
    from lapwing.audit.registry.sessions import session_cases  # noqa: PLC0415
    from lapwing.audit.registry.shuffled_reports import shuffled_case  # noqa: PLC0415

    return [
        *mechanism_cases(),
        *session_cases(),
        *loss_cases(),
        *sensitivity_cases(),
        *randomizer_cases(),
        shuffled_case(),
        *aggregate_cases(),
        *batch_cases(),
        *preliminary_cases(),
        *protocol_cases(),
        *joint_noise_cases(),
        *learning_cases(),
        *publishing_cases(),
        *gate_cases(),
    ]
