// Who is told when something is wrong: rules over the logs and over the platform's own metrics.
// docs/operations.md says what each one means. Rules for Prometheus are in infra/monitoring.
param location string
param name string
param workspaceId string
param portalId string
param managerId string
param workerId string
@description('The reduction pool; empty: there is none.')
param poolId string
param storageId string

@description('Mail address that alerts go to.')
param mail string

var lines = 'ContainerAppConsoleLogs_CL | where ContainerAppName_s startswith "${name}-" | extend line = parse_json(Log_s)'

var queries = [
  {
    name: 'no-manager-acts'
    text: 'No service manager acts; requests are kept and not worked on.'
    severity: 1
    query: '${lines} | where line.logger == "manager.fleet" and line.event == "fleet"'
    operator: 'LessThan'
    threshold: 1
    window: 'PT10M'
  }
  {
    name: 'no-workers'
    text: 'Tasks are ready and no worker runs.'
    severity: 1
    query: '${lines} | where line.logger == "manager.fleet" and line.event == "fleet" and toint(line.ready) > 0 and toint(line.slots) == 0'
    operator: 'GreaterThan'
    threshold: 12
    window: 'PT15M'
  }
  {
    name: 'unknown-failures'
    text: 'An attempt failed for a cause that Swathmill does not know.'
    severity: 3
    query: '${lines} | where line.event == "attempt ended" and line.outcome == "unknown"'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT1H'
  }
  {
    name: 'attempts-fail'
    text: 'Many attempts of an hour failed.'
    severity: 2
    query: '${lines} | where line.event == "attempt ended" and line.outcome !in ("success", "cancelled")'
    operator: 'GreaterThan'
    threshold: 200
    window: 'PT1H'
  }
]

var pool = empty(poolId) ? [] : [
  {
    name: 'reductions'
    id: poolId
  }
]
var restarts = concat(pool, [
  {
    name: 'portal'
    id: portalId
  }
  {
    name: 'manager'
    id: managerId
  }
  {
    name: 'worker'
    id: workerId
  }
])

resource people 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: '${name}-operators'
  location: 'global'
  properties: {
    enabled: true
    groupShortName: name
    emailReceivers: [
      {
        name: 'operators'
        emailAddress: mail
        useCommonAlertSchema: true
      }
    ]
  }
}

resource rules 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [for one in queries: {
  name: '${name}-${one.name}'
  location: location
  properties: {
    displayName: one.name
    description: one.text
    severity: one.severity
    enabled: true
    scopes: [
      workspaceId
    ]
    // The table of the logs appears with the first line.
    skipQueryValidation: true
    evaluationFrequency: 'PT5M'
    windowSize: one.window
    criteria: {
      allOf: [
        {
          query: one.query
          timeAggregation: 'Count'
          operator: one.operator
          threshold: one.threshold
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }
      ]
    }
    autoMitigate: true
    actions: {
      actionGroups: [
        people.id
      ]
    }
  }
}]

resource restarting 'Microsoft.Insights/metricAlerts@2018-03-01' = [for one in restarts: {
  name: '${name}-${one.name}-restarts'
  location: 'global'
  properties: {
    description: 'The ${one.name} was started again more than five times in half an hour.'
    severity: 2
    enabled: true
    scopes: [
      one.id
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT30M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'restarts'
          criterionType: 'StaticThresholdCriterion'
          metricName: 'RestartCount'
          operator: 'GreaterThan'
          threshold: 5
          timeAggregation: 'Maximum'
        }
      ]
    }
    actions: [
      {
        actionGroupId: people.id
      }
    ]
  }
}]

resource failing 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: '${name}-portal-fails'
  location: 'global'
  properties: {
    description: 'The portal answered more than 20 calls with a status of 500 or more in 15 minutes.'
    severity: 1
    enabled: true
    scopes: [
      portalId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'fails'
          criterionType: 'StaticThresholdCriterion'
          metricName: 'Requests'
          operator: 'GreaterThan'
          threshold: 20
          timeAggregation: 'Total'
          dimensions: [
            {
              name: 'statusCodeCategory'
              operator: 'Include'
              values: [
                '5xx'
              ]
            }
          ]
        }
      ]
    }
    actions: [
      {
        actionGroupId: people.id
      }
    ]
  }
}

resource away 'Microsoft.Insights/metricAlerts@2018-03-01' = {
  name: '${name}-storage-away'
  location: 'global'
  properties: {
    description: 'Storage answered fewer than 99 of 100 calls in 15 minutes.'
    severity: 1
    enabled: true
    scopes: [
      storageId
    ]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'away'
          criterionType: 'StaticThresholdCriterion'
          metricName: 'Availability'
          operator: 'LessThan'
          threshold: 99
          timeAggregation: 'Average'
        }
      ]
    }
    actions: [
      {
        actionGroupId: people.id
      }
    ]
  }
}
