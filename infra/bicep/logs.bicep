// Logs of every process and of the storage account.
param location string
param name string
param operators string

@description('Built-in role Log Analytics Reader.')
var readerRole = '73c42c96-874c-492b-b04d-ab87d138a893'

resource workspace 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: '${name}-logs'
  location: location
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: 90
    features: {
      enableLogAccessUsingOnlyResourcePermissions: true
    }
  }
}

resource reading 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(operators)) {
  name: guid(workspace.id, operators, readerRole)
  scope: workspace
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', readerRole)
    principalId: operators
    principalType: 'Group'
  }
}

output workspaceId string = workspace.id
output workspaceName string = workspace.name
